# SPDX-License-Identifier: Apache-2.0
"""When the next world of an elastic job is due, and for whom it waits. Pure.

- Every living member of the newest one must ask for a place: because one of them died, which the others
  notice by themselves, or because rank 0 was told that hosts came or went.
- Newcomers are admitted when they ask for a place: nobody waits for their imports. It is no reset if that is
  all that changes. After the last reset none is admitted: one that failed would end the job.
"""

from __future__ import annotations

from typing import List, Sequence

from horovod.runner.elastic.hosts import HostUpdateResult
from horovod.runner.elastic.situation import Situation
from horovod.runner.elastic.workers import MEMBER, STARTING, Worker

# Workers of a host that come at about the same time are admitted together.
_TOGETHER_SECONDS = 0.5


def change(job: Situation, now: float) -> int:
    """What a whole world should pause for at its next commit: newcomers, or workers that must go."""
    if job.broken_since is not None or job.finishing or not job.generation:
        return HostUpdateResult.no_update
    found = HostUpdateResult.no_update
    if any(one.leaving and one.generation == job.generation for one in job.workers):
        found |= HostUpdateResult.removed
    newcomers = job.newcomers()
    if newcomers and not job.progress.used_up:
        hosts = {one.host for one in newcomers}
        soon = any(one.stage == STARTING and one.host in hosts for one in job.workers.staying())
        if not soon or now >= min(one.since for one in newcomers) + _TOGETHER_SECONDS:
            found |= HostUpdateResult.added
    return found


def only_grows(job: Situation, missing: Sequence[Worker]) -> bool:
    """Whether the next world is for newcomers only: they were announced, nobody is lost or leaves."""
    leavers = any(one.leaving and one.generation == job.generation for one in job.workers)
    return job.notified == HostUpdateResult.added and not (missing or leavers or job.cause)


def absent(job: Situation) -> List[Worker]:
    """Those whom the next world waits for."""
    if job.generation == 0:
        return [one for one in job.workers.staying() if one.stage == STARTING]
    return [one for one in job.members() if one.stage == MEMBER]


def is_due(job: Situation, missing: Sequence[Worker], now: float) -> bool:
    """Whether the next world can be formed, of those who ask for a place.

    Args:
        missing: the absent, for whom patience ends some time.
    """
    waiting, members, limits = job.workers.waiting(), job.members(), job.limits
    if not waiting or (members and all(one.stage == MEMBER for one in members)):
        return False
    if job.generation == 0:
        patience = (job.started_at or now) + limits.start_timeout
    else:
        patience = (now if job.broken_since is None else job.broken_since) + 2 * limits.network_timeout
    if (missing and now < patience) or len(waiting) < (1 if job.finishing else limits.min_np):
        return False
    # Whoever has the state will come, or the job ends.
    return not job.state_exists or any(one.has_state for one in waiting)


def times(job: Situation) -> List[float]:
    """When what is said above may change by itself."""
    found = []
    if job.generation == 0 and job.started_at is not None:
        found.append(job.started_at + job.limits.start_timeout)
    if job.broken_since is not None and job.generation:
        found.append(job.broken_since + 2 * job.limits.network_timeout)
    else:
        found += [one.since + _TOGETHER_SECONDS for one in job.workers.waiting()]
    return found
