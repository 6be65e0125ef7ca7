# SPDX-License-Identifier: Apache-2.0
"""Who works, who waits, and who holds up the others: judged from what all ranks last said. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Protocol, Tuple

from horovod.rendezvous.identity import ranks_text

# Others have waited so long for a rank: it is red. Ranks report every second: after this many it is silent.
STALLED_SECONDS, SILENT_SECONDS = 5.0, 4.0

STARTING, COMPUTING, WORKING, WAITING = "starting", "computing", "communicating", "waiting"
STALLED, SILENT, ENDED, FAILED = "stalled", "silent", "ended", "failed"
RED = (STALLED, SILENT, FAILED)
Topic = Tuple[Any, Any]  # a generation, and a tensor that is waited for in it
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
    awaited: Dict[str, float] = {}  # for how long
    found = dict(made)
    for waiters, blamed in _waiting([one for one in everybody if one.code is None and one.heard], made):
        text = f"for {ranks_text([_number(rank) for rank in blamed])}" if blamed else ""
        waited = max(made[one.name].since or 0.0 for one in waiters)
        for one in waiters:
            if made[one.name].state == WAITING:
                found[one.name] = Verdict(WAITING, text, made[one.name].since)
        for rank in blamed:
            awaited[rank.name] = max(awaited.get(rank.name, 0.0), waited)
    for name, waited in awaited.items():
        if made[name].state in (COMPUTING, STARTING, WAITING) and waited >= STALLED_SECONDS:
            why = f"has kept the others waiting for {waited:.0f} s"
            if made[name].state == WAITING:  # it went another way than they did
                why = f"{why}, and waits itself {found[name].why}".rstrip()
            made[name] = Verdict(STALLED, why, waited)
    return {**found, **{name: one for name, one in made.items() if one.state == STALLED}}


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
    return Verdict(state, "", since)


def _waiting(ranks: List[Known], made: Mapping[str, Verdict]) -> Iterator[Tuple[List[Known], List[Known]]]:
    """Those that wait for the same, each time with those that they wait for."""
    waiters: Dict[Topic, List[Known]] = {}
    for rank in ranks:
        state = made[rank.name].state
        if state == WAITING or (state == WORKING and rank.doing.get("missing")):
            waiters.setdefault(_topic(rank), []).append(rank)
    for topic, group in waiters.items():
        # Rank 0 knows which hosts are missing, the first rank of a host which ranks of its own, others
        # nothing: what they know is put together.
        missing = {int(one) for waiter in group for one in waiter.doing.get("missing") or ()}
        others = [rank for rank in ranks if _topic(rank)[0] == topic[0]]
        if missing:  # who waits for the same is there
            others = [one for one in others if _number(one) in missing]
            yield group, [one for one in others if made[one.name].state != WAITING or _topic(one) != topic]
        else:  # nobody knows: then it is those that compute
            yield group, [one for one in others if made[one.name].state == COMPUTING]


def _topic(rank: Known) -> Topic:
    return rank.snapshot.get("generation"), rank.doing.get("name")


def _number(rank: Known) -> int:
    return rank.number if rank.number >= 0 else int(rank.snapshot.get("rank", -1))
