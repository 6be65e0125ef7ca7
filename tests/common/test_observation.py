# SPDX-License-Identifier: Apache-2.0
"""What a rank tells about itself: counters, what it does now, its last collectives, its stacks."""

from __future__ import annotations

import threading
from typing import get_type_hints

import pytest
from processes import Processes
from tests_support import shared_world

from horovod.common import observation

WAITING = """
from horovod.common import observation
hvd.init()
hvd.allreduce(np.ones(4, np.float32), name="first")
if hvd.rank() == 0:
    import threading
    thread = threading.Thread(target=lambda: hvd.allreduce(np.ones((2, 3), np.float32), name="second"))
    thread.start()
    while observation.now()["missing"] != [1]:
        time.sleep(0.01)
    say(observation.now())
    thread.join()
else:
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.01)
    hvd.allreduce(np.ones((2, 3), np.float32), name="second")
say({"idle": observation.now(), "recent": observation.recent(), "metrics": hvd.metrics()})
hvd.barrier()
"""


def test_who_waits_for_whom(tmp_path):
    """While it waits, in the counters, and in the recorder of both ranks."""
    with Processes(WAITING, 2, env={"GO": str(tmp_path / "go")}) as ranks:
        now = ranks.heard(0)
        assert now["state"] == "waiting" and now["name"] == "allreduce.second" and now["kind"] == "ALLREDUCE"
        assert now["since_s"] > 0 and now["queue"] == 1
        (tmp_path / "go").touch()
        waited, late = ranks.heard(0), ranks.heard(1)
        assert ranks.finish() == [0, 0]
    for one in (waited, late):
        assert one["idle"]["state"] == "idle" and one["idle"]["missing"] == []
        assert [record["name"] for record in one["recent"]] == ["allreduce.first", "allreduce.second"]
        record = one["recent"][-1]
        assert record["last_rank"] == 1 and record["state"] == "done"
        assert record["shape"] == [2, 3] and record["dtype"] == "float32" and record["bytes"] == 24
        assert 0 < record["queued_us"] <= record["ready_us"] <= record["started_us"] <= record["ended_us"]
    metrics = waited["metrics"]
    assert metrics["waited_for_us"]["1"] > 0 and metrics["wait_us"] >= metrics["waited_for_us"]["1"]
    assert waited["recent"][-1]["waited_us"] > 0
    assert "1" not in late["metrics"]["waited_for_us"] and late["recent"][-1]["waited_us"] == 0


def counters():
    import numpy as np

    import horovod.numpy as hvd
    from horovod.common import observation

    before = hvd.metrics()
    for _ in range(3):
        hvd.allreduce(np.ones(8, np.float32), name="counted")
        hvd.allgather(np.ones(2, np.float64), name="gathered")
        observation.step_done()
    hvd.mark("done")
    return before, hvd.metrics(), observation.snapshot()


def test_metrics_have_every_key_and_count():
    for rank, (before, after, snapshot) in enumerate(shared_world(2).run(counters)):
        assert set(after) == set(get_type_hints(observation.Metrics))

        def grew(kind, what, before=before, after=after):
            return after["by_kind"][kind][what] - before["by_kind"].get(kind, {what: 0})[what]

        assert (grew("ALLREDUCE", "count"), grew("ALLREDUCE", "bytes")) == (3, 96)
        assert (grew("ALLGATHER", "count"), grew("ALLGATHER", "bytes")) == (3, 48)
        assert after["steps"] - before["steps"] == 3 and after["step_us"] >= after["last_step_us"] > 0
        latency = after["latency_us"]
        assert len(latency["counts"]) == len(latency["bounds"]) + 1
        assert sum(latency["counts"]) - sum(before["latency_us"]["counts"]) == 6
        assert latency["bounds"] == sorted(latency["bounds"])
        assert after["queue_depth"] == 0 and after["buffer_bytes"] > 0
        assert snapshot["rank"] == rank and snapshot["size"] == 2 and snapshot["steps"] == after["steps"]
        assert snapshot["now"]["state"] == "idle" and snapshot["memory_bytes"] > 1 << 20


def restarted():
    import horovod.numpy as hvd

    hvd.init()
    first = hvd.metrics()["restarts"]
    hvd.shutdown()
    hvd.init()
    return hvd.metrics()["restarts"] - first


def test_joining_again_is_a_restart():
    from tests_support import run_world

    assert run_world(restarted, 2) == [1, 1]


@pytest.mark.parametrize("call", ["metrics", "mark"])
def test_without_init_they_say_so(call):
    with pytest.raises(ValueError, match="hvd.init"):
        getattr(observation, call)(*(["text"] if call == "mark" else []))
    observation.step_done()  # an optimizer may be used without init


def test_the_recorder_keeps_the_last_thousand():
    script = """
from horovod.common import observation
hvd.init()
for i in range(1100):
    hvd.allreduce(np.ones(1, np.float32), name=f"tensor {i} " + 200 * "x")
kept = observation.recent()
say([len(kept), kept[0]["name"][:24], kept[-1]["name"][:24], len(kept[0]["name"])])
"""
    with Processes(script, 1) as ranks:
        count, first, last, length = ranks.heard(0)
    assert (count, first, last) == (1000, "allreduce.tensor 100 xxx", "allreduce.tensor 1099 xx")
    assert length == 119, "long names are cut"


def test_stacks_name_every_thread_and_its_line():
    inside, go_on = threading.Event(), threading.Event()

    def waits_here():
        inside.set()
        go_on.wait()

    thread = threading.Thread(target=waits_here, name="the loader")
    thread.start()
    inside.wait()
    try:
        text = observation.stacks()
    finally:
        go_on.set()
        thread.join()
    assert 'Thread "the loader"' in text and "waits_here" in text and "go_on.wait()" in text
    assert text.startswith('Thread "MainThread"') and "test_stacks_name_every_thread" in text
