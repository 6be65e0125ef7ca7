# SPDX-License-Identifier: Apache-2.0
"""Who works, who waits, and who holds up the others: judged from what all ranks last said. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Protocol, Set, Tuple

from horovod.rendezvous.identity import ranks_text

# Others have waited so long for a rank: it is red. Ranks report every second: after this many it is silent.
STALLED_SECONDS, SILENT_SECONDS = 5.0, 4.0

STARTING, COMPUTING, WORKING, WAITING = "starting", "computing", "communicating", "waiting"
STALLED, SILENT, ENDED, FAILED = "stalled", "silent", "ended", "failed"
RED = (STALLED, SILENT, FAILED)
_STATES = {"idle": COMPUTING, "working": WORKING, "waiting": WAITING}


class Known(Protocol):
    """What has to be known of a rank (collector.Rank)."""

    name: str
    number: int
    snapshot: Dict[str, Any]
    heard: float
    code: Optional[int]

    @property
    def doing(self) -> Mapping[str, Any]:
        """What it said it does."""


@dataclass(frozen=True)
class Verdict:
    """What to show of one rank: its state, a sentence if there is something to say, for how long."""

    state: str
    why: str = ""
    since: Optional[float] = None


def verdicts(ranks: Iterable[Known], now: float) -> Dict[str, Verdict]:
    """The verdict on each rank, by name."""
    everybody = list(ranks)
    made = {rank.name: _alone(rank, now) for rank in everybody}
    stalled = {}
    for name, waited in _awaited(everybody, made).items():
        if made[name].state in (COMPUTING, STARTING, WAITING) and waited >= STALLED_SECONDS:
            why = f"has kept the others waiting for {waited:.0f} s"
            if made[name].state == WAITING:  # it went another way than they did
                why += f", and waits itself {made[name].why}".rstrip()
            stalled[name] = Verdict(STALLED, why, waited)
    return {**made, **stalled}


def _alone(rank: Known, now: float) -> Verdict:
    """What can be said without the others."""
    if rank.code is not None:
        return Verdict(ENDED) if rank.code == 0 else Verdict(FAILED, f"ended with exit code {rank.code}")
    if not rank.heard:
        return Verdict(STARTING)
    quiet = now - rank.heard
    if quiet >= SILENT_SECONDS:
        return Verdict(
            SILENT,
            f"has said nothing for {quiet:.0f} s: it is stopped, its host is overloaded or cut off, or code "
            "that does not let go of the Python interpreter runs",
            quiet,
        )
    doing = rank.doing
    state = _STATES.get(str(doing.get("state")), STARTING)
    since = None if doing.get("since_s") is None else float(doing["since_s"]) + quiet
    why = ""
    if state == WAITING and doing.get("missing"):
        why = f"for {ranks_text(list(doing['missing']))}"
    return Verdict(state, why, since)


def _awaited(ranks: List[Known], made: Mapping[str, Verdict]) -> Dict[str, float]:
    """For how long each rank has been awaited by others, where it has."""
    members = [rank for rank in ranks if rank.code is None and rank.heard]
    waiters = [rank for rank in members if made[rank.name].state == WAITING or rank.doing.get("missing")]
    # Rank 0 knows who is missing, the first rank of a host those of its host, others nobody: told to all.
    named: Dict[Tuple[Any, Any], Set[int]] = {}
    for waiter in waiters:
        named.setdefault(_topic(waiter), set()).update(map(int, waiter.doing.get("missing") or ()))
    found: Dict[str, float] = {}
    for waiter in waiters:
        missing = named[_topic(waiter)]
        for rank in members:
            if rank is waiter or rank.snapshot.get("generation") != waiter.snapshot.get("generation"):
                continue
            number = rank.number if rank.number >= 0 else rank.snapshot.get("rank", -1)
            # Where nobody knows, it is those that compute.
            if number in missing if missing else made[rank.name].state == COMPUTING:
                found[rank.name] = max(found.get(rank.name, 0.0), made[waiter.name].since or 0.0)
    return found


def _topic(waiter: Known) -> Tuple[Any, Any]:
    return waiter.snapshot.get("generation"), waiter.doing.get("name")
