# SPDX-License-Identifier: Apache-2.0
"""When an elastic job cannot go on: nobody is left who has the state, or too few workers for too long. Pure.

The state of the training is in the memory of workers. The job ends when nobody is left who has it.
"""

from __future__ import annotations

from typing import Optional

from horovod.runner.elastic.situation import KILLED, Situation
from horovod.runner.elastic.workers import MEMBER
from horovod.runner.supervision import HostError, JobFailed, culprit

NO_STATE_LEFT = "No hosts from previous set remaining, unable to broadcast state."


class TimeoutException(RuntimeError):
    """There were not enough slots for too long."""


def failed_at_last(job: Situation) -> Optional[RuntimeError]:
    """All workers of a job that was finishing have ended; None if none of them has failed by itself."""
    # Nobody has taken their places, whatever ended them: what they had to do is not done.
    return JobFailed(culprit(job.unforgiven)) if job.unforgiven else None


def without_state(job: Situation) -> Optional[RuntimeError]:
    """Why nobody can go on with the training, or None."""
    alive = job.workers.staying()
    if job.state_exists:
        # One that is still in the world may have got the state a moment ago.
        hope = any(one.has_state or (one.veteran and one.stage == MEMBER) for one in alive)
    else:
        hope = not job.ever_whole or any(one.veteran for one in alive)
    if hope:
        return None
    first = culprit(job.failures) if job.failures else None
    if first is not None and first.code != KILLED:
        return JobFailed(first)
    why = f" Last: {job.cause}." if job.cause else ""
    return HostError(f"{NO_STATE_LEFT}{why} Every worker that had it is gone")


class Patience:
    """With too few workers, from the beginning on."""

    def __init__(self, now: float) -> None:
        self._short_since: Optional[float] = now  # None while there are enough

    def ends(self, job: Situation, now: float) -> Optional[RuntimeError]:
        """Why the job should not wait any longer, or None."""
        limits = job.limits
        enough = limits.min_np if job.started_at is not None else limits.num_proc
        ready = len(job.members()) + len(job.newcomers())
        if job.finishing or ready >= enough:
            self._short_since = None
            return None
        if self._short_since is None:
            self._short_since = now
        capacity, hope = job.hosts.capacity(now), job.hosts.wake_at(now)
        for_good = limits.fixed_hosts and capacity < enough and hope is None
        if not for_good and now < self._short_since + limits.elastic_timeout:
            return None
        first = next((one for one in job.failures if not one.is_echo()), None)
        if for_good and first is not None:
            return JobFailed(first)
        after = 0 if for_good else limits.elastic_timeout
        return TimeoutException(
            "Timed out waiting for minimum number of slots to become available. Please check that you "
            f"have enough resources to run at least {enough} Horovod processes. "
            f"{capacity} slots are usable, {ready} processes ready. Timeout after {after:g} seconds."
        )

    def ends_at(self, job: Situation) -> Optional[float]:
        """When it ends, if there are too few."""
        return None if self._short_since is None else self._short_since + job.limits.elastic_timeout
