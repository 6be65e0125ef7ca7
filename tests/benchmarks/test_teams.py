# SPDX-License-Identifier: Apache-2.0
"""Teams start, take turns, fail with a reason, and are replaced."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List

import pytest

from benchmarks.bench import KIB, MIB, Bench, allreduces, same
from benchmarks.contenders import CONTENDERS, Contender
from benchmarks.contenders.adapter import Adapter
from benchmarks.rows import Turn
from benchmarks.starting import Teams
from benchmarks.team import ContenderFailed
from benchmarks.turns import Patience, take_turns
from benchmarks.worker import Worker


@pytest.fixture(scope="module")
def teams() -> Iterator[Teams]:
    with Teams() as made:
        yield made


class Scripted:
    """Work that takes the times it is told, and may fail."""

    def __init__(self, log: List[str], name: str, fails_at: int = -1) -> None:
        self._log, self._name, self._fails_at, self._turns = log, name, fails_at, 0

    def warm(self) -> None:
        self._log.append(f"warm {self._name}")

    def turn(self) -> Turn:
        self._turns += 1
        if self._turns == self._fails_at:
            raise ContenderFailed(f"{self._name} is tired")
        self._log.append(self._name)
        return Turn([1e-6], [1e-6])


@pytest.mark.parametrize("size", [4, 64 * KIB, MIB, 64 * MIB])
def test_contenders_of_a_speed_repeat_a_call_as_often(size: int) -> None:
    jobs = allreduces(("horovod", "openmpi", "mpich", "memcpy", "gloo"), size)
    often = {shown: (job.arguments["reps"], job.arguments["inner"]) for shown, job in jobs.items()}
    slow = often.pop("gloo")
    assert len(set(often.values())) == 1
    assert (slow in often.values()) == (size > 4 * KIB)


def test_the_order_of_turns_goes_round() -> None:
    log: List[str] = []
    take_turns("x", {name: Scripted(log, name) for name in "abc"}, Patience(3))
    assert log == ["warm a", "warm b", "warm c", *"abc", *"bca", *"cab"]


def test_who_fails_is_named_and_the_others_go_on() -> None:
    log: List[str] = []
    row = take_turns(
        "x", {"horovod": Scripted(log, "h"), "b": Scripted(log, "b", 2)}, Patience(3), {"c": "never came"}
    )
    assert row.absent == {"b": "b is tired", "c": "never came"}
    assert set(row.times) == {"horovod"} and row.times["horovod"].samples == 3
    assert row.noise is not None and row.not_run == ""
    ours = take_turns("x", {"horovod": Scripted(log, "h", 1), "b": Scripted(log, "b")}, Patience(1))
    assert ours.not_run == "h is tired" and set(ours.times) == {"b"}


def test_a_row_to_which_nobody_came_says_why() -> None:
    row = take_turns("x", {}, Patience(2), {"horovod": "it did not start", "b": "nor did it"})
    assert row.not_run == "it did not start" and not row.times


def test_a_row_ends_when_its_time_is_over_and_says_so() -> None:
    log: List[str] = []
    row = take_turns("x", {"horovod": Scripted(log, "h")}, Patience(9, seconds=0.0))
    assert row.times["horovod"].samples == 2 and row.facts == {"rounds_left_out": 7}


def test_real_teams_take_turns(teams: Teams) -> None:
    bench = Bench(teams, quick=True, rounds=2)
    row = bench.compare("x", 2, same(("horovod", "memcpy"), "allreduce", bytes=4096, reps=2, inner=3))
    assert set(row.times) == {"horovod", "memcpy"} and not row.absent
    assert all(t.samples == 4 and t.calls == 12 and t.median > 0 for t in row.times.values())
    jobs: Dict[str, Dict[str, Any]] = {
        "many": {"shapes": [3, 1000, 1]},
        "blocking": {"shapes": [3, 1]},
        "busy": {"bytes": 64},
    }
    for do, arguments in jobs.items():
        found = bench.compare(do, 2, same(("horovod",), do, reps=1, **arguments))
        assert found.times["horovod"].samples == 2, found


def test_a_contender_that_cannot_do_it_says_so_and_is_replaced(teams: Teams) -> None:
    bench = Bench(teams, quick=True, rounds=1)
    row = bench.compare("x", 1, same(("memcpy",), "train", model="linear", reps=1))
    assert "NotImplementedError" in row.absent["memcpy"] and not row.times
    again = bench.compare("x", 1, same(("memcpy",), "allreduce", bytes=4, reps=1, inner=1))
    assert again.times["memcpy"].samples == 1


def test_a_team_that_cannot_start_says_why(teams: Teams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONTENDERS, "broken", Contender("memory:Nobody", "ranks"))
    found, absent = teams.get(["broken", "unheard of"], 2)
    assert not found
    assert "no attribute 'Nobody'" in absent["broken"]
    assert "no contender is called unheard of" in absent["unheard of"]


def test_ranks_that_never_meet_are_noticed(teams: Teams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONTENDERS, "apart", Contender("horovod_numpy:InPlace", "ranks"))
    _, absent = teams.get(["apart"], 2)
    assert "2 ranks were to meet; they say (rank, size): [(0, 1), (0, 1)]" in absent["apart"]


def test_wrong_sums_are_noticed() -> None:
    with pytest.raises(AssertionError, match="allreduce of ones on 2 ranks gave 1.0"):
        Worker(Wrong()).check()


class Wrong(Adapter):
    """Adds nothing."""

    rank, size = 0, 2

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        return data
