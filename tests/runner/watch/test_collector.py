# SPDX-License-Identifier: Apache-2.0
"""What is concluded from snapshots, events and lines: stories told to the collector."""

from __future__ import annotations

import json

import pytest

from horovod.runner.watch.collector import Collector
from horovod.runner.watch.rates import Rates


def snapshot(rank, state="idle", since=0.0, missing=(), generation=1, name="", **more):
    doing = {"state": state, "name": name, "kind": "ALLREDUCE", "since_s": since, "missing": list(missing)}
    return {"rank": rank, "pid": 100 + rank, "generation": generation, "now": doing, **more}


def job(size=3):
    made = Collector("python train.py", began=0.0)
    for rank in range(size):
        made.started(str(rank), f"node{rank // 2}", rank)
    return made


def states(collector, now):
    return [row["state"] for row in collector.view(now)["ranks"]]


def test_ranks_start_compute_wait_and_communicate():
    collector = job()
    assert states(collector, 1.0) == ["starting"] * 3
    for rank, state in enumerate(["idle", "waiting", "working"]):
        collector.reported(str(rank), snapshot(rank, state, 0.1, [0] if state == "waiting" else []), 1.0)
    assert states(collector, 1.5) == ["computing", "waiting", "communicating"]
    view = collector.view(1.5)
    assert view["hosts"] == 2 and view["totals"]["ranks"] == 3 and view["totals"]["bad"] == 0
    assert view["ranks"][1]["why"] == "for rank 0"
    assert json.loads(json.dumps(view)) == {**view, "seen": [0, 0]}


@pytest.mark.parametrize("missing", [[2], []], ids=["named by rank 0", "inferred"])
def test_who_keeps_the_others_waiting_turns_red_and_is_asked_once(missing):
    collector = job()
    for now, waited in ((1.0, 0.5), (6.0, 5.5), (7.0, 6.5)):
        for rank in (0, 1):
            collector.reported(
                str(rank), snapshot(rank, "waiting", waited, [] if rank else missing, name="conv1"), now
            )
        collector.reported("2", snapshot(2, "idle"), now)
        wanted = collector.look(now)
        assert wanted == (["2"] if now == 6.0 else [])
        for name in wanted:
            collector.ranks[name].asked = True
    rows = collector.view(7.0)["ranks"]
    assert [row["bad"] for row in rows] == [False, False, True]
    assert rows[2]["state"] == "stalled" and "kept the others waiting for 6 s" in rows[2]["why"]
    collector.answered("2", "train.py:88 in load", 7.1)
    assert collector.view(7.2)["ranks"][2]["stack"] == "train.py:88 in load"
    for rank in range(3):
        collector.reported(str(rank), snapshot(rank, "idle"), 8.0)
    assert collector.look(8.0) == []
    texts = [event["text"] for event in collector.view(8.0)["events"]]
    assert texts == ["rank 2 on node1 has kept the others waiting for 6 s", "rank 2 on node1 goes on"]


def test_a_rank_that_waits_for_the_same_is_not_missing_whatever_rank_0_knows():
    collector = Collector("python train.py", 0.0)
    for rank in range(4):
        collector.started(str(rank), f"node{rank // 2}", rank)
    knows = {0: [2, 3], 2: [3]}  # rank 0 of the other host, its first rank of its own
    for rank in range(3):
        collector.reported(str(rank), snapshot(rank, "waiting", 9.0, knows.get(rank, ()), name="conv1"), 1.0)
    collector.reported("3", snapshot(3, "idle"), 1.0)
    rows = collector.view(1.0)["ranks"]
    assert [row["state"] for row in rows] == ["waiting", "waiting", "waiting", "stalled"]
    assert [row["why"] for row in rows[:3]] == ["for rank 3"] * 3


def test_ranks_that_wait_for_each_other_in_different_tensors_turn_red():
    collector = job(3)
    for rank, missing, name in ((0, [2], "conv1"), (1, [2], "conv1"), (2, [0, 1], "conv2")):
        collector.reported(str(rank), snapshot(rank, "waiting", 9.0, missing, name=name), 1.0)
    rows = collector.view(1.0)["ranks"]
    assert [row["state"] for row in rows] == ["stalled"] * 3
    assert rows[2]["why"] == "has kept the others waiting for 9 s, and waits itself for ranks 0-1"
    assert rows[2]["tensor"] == "conv2"


def test_ranks_of_another_generation_are_not_blamed():
    collector = job(2)
    collector.reported("0", snapshot(0, "waiting", 20.0, generation=2), 1.0)
    collector.reported("1", snapshot(1, "idle", generation=1), 1.0)
    assert states(collector, 1.0) == ["waiting", "computing"]


def test_a_silent_rank_turns_red_with_its_last_stack():
    collector = job(2)
    for now in (1.0, 2.0, 6.5):
        collector.reported("0", snapshot(0), now)
        if now < 3:
            collector.reported("1", snapshot(1, stack=["train.py:1 in <module>", "train.py:7 in step"]), now)
    assert collector.look(6.5) == ["1"]
    collector.ranks["1"].asked = True
    frozen = collector.view(7.0)["ranks"][1]
    assert frozen["state"] == "silent" and frozen["stack"].endswith("train.py:7 in step")
    assert frozen["stack_time"] == 2.0
    assert collector.look(8.0) == []  # the question stands


def test_an_old_answer_does_not_hide_where_a_frozen_rank_was_last():
    collector = job(1)
    collector.reported("0", snapshot(0, stack=["a"]), 1.0)
    collector.answered("0", "an answer of long ago", 1.0)
    collector.reported("0", snapshot(0, stack=["b"]), 20.0)
    collector.look(30.0)
    collector.ranks["0"].asked = True
    assert collector.view(30.0)["ranks"][0]["stack"] == "b"


def test_the_end_of_ranks_and_of_the_job():
    collector = job(2)
    collector.exited("0", 0, 1.0)
    collector.exited("1", 137, 1.0)
    assert states(collector, 2.0) == ["ended", "failed"]
    collector.look(2.0)
    collector.over("rank 1 failed", 2.0)
    view = collector.view(2.0)
    assert view["end"] == "rank 1 failed" and view["totals"]["ranks"] == 0
    assert sum(event["bad"] for event in view["events"]) == 3


def test_elastic_workers_get_new_ranks_and_the_dead_are_forgotten():
    collector = Collector("python train.py", 0.0)
    for number in range(3):
        collector.started(f"node7[{number}]#{number}", "node7")
    assert [row["rank"] for row in collector.view(1.0)["ranks"]] == [-1, -1, -1]
    collector.renumbered({"node7[1]#1": 0, "node7[0]#0": 1, "node7[2]#2": 2})
    assert [row["name"] for row in collector.view(1.0)["ranks"]][:2] == ["node7[1]#1", "node7[0]#0"]
    collector.exited("node7[1]#1", 1, 2.0)
    collector.renumbered({"node7[0]#0": 0, "node7[2]#2": 1})
    assert [(row["name"], row["rank"]) for row in collector.view(3.0)["ranks"]] == [
        ("node7[0]#0", 0),
        ("node7[2]#2", 1),
    ]


def test_events_and_lines_are_sent_once_and_kept_within_bounds():
    collector = job(1)
    collector.printed("0", "stdout", [f"line {n}" for n in range(1000)])
    collector.happened("note", "first", 1.0)
    view = collector.view(1.0)
    assert view["lines"][-1]["text"] == "line 999" and len(view["lines"]) == 400
    collector.printed("0", "stderr", ["x" * 5000])
    later = collector.view(2.0, view["seen"])
    assert later["events"] == [] and [len(line["text"]) for line in later["lines"]] == [2000]
    assert collector.view(3.0, later["seen"])["lines"] == []


def test_speeds_are_means_of_the_last_seconds_and_start_anew_with_the_engine():
    rates = Rates()
    assert rates.per_second("steps") is None and rates.waiting_share() is None
    for second in range(30):
        metrics = {"wait_us": second * 250_000, "bytes": second * 1000, "tensors": second}
        rates.add({"steps": second * 4, "samples": second * 128, "metrics": metrics}, float(second))
    assert rates.per_second("steps") == 4 and rates.per_second("samples") == 128
    assert rates.step_seconds() == 0.25 and rates.waiting_share() == 0.25
    assert rates.history()[-1] == 0.25
    rates.add({"steps": 0, "samples": 0, "metrics": {"wait_us": 0, "bytes": 0, "tensors": 0}}, 30.0)
    assert rates.per_second("bytes") is None


def test_a_job_is_as_fast_as_its_slowest_rank():
    collector = job(2)
    for now in (0.0, 10.0):
        collector.reported("0", snapshot(0, steps=int(now * 3), samples=now * 30, memory_bytes=5), now)
        collector.reported("1", snapshot(1, steps=int(now * 2), samples=now * 20, memory_bytes=6), now)
    totals = collector.view(10.0)["totals"]
    assert totals["steps_s"] == 2 and totals["samples_s"] == 50 and totals["memory"] == 11
    assert totals["step_s"] == 0.5
