# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a rank, whatever it is doing: all others get an error that names it, and nothing is left."""

from __future__ import annotations

import os
import time

import pytest
from processes import Processes

# What all ranks do around the death of the last one. `say("ready")` tells the test that it may kill.
SITUATIONS = {
    # The victim has not submitted; the others wait for it.
    "pending": """
hvd.init()
say("ready")
if hvd.rank() == hvd.size() - 1:
    time.sleep(1000)
attempt(lambda: hvd.allreduce(np.ones(4), name="waits"))
""",
    # In the middle of a big one, again and again until it dies.
    "busy": """
hvd.init()
big = np.ones(25 << 20, np.float32)
say("ready")
def loop():
    for i in range(10000):
        hvd.allreduce_(big, op=hvd.Sum, name="big")
attempt(loop)
""",
    # Nothing in flight: the next operation fails.
    "idle": """
hvd.init()
hvd.barrier()
say("ready")
if hvd.rank() == hvd.size() - 1:
    time.sleep(1000)
time.sleep(1)
attempt(lambda: hvd.allreduce(np.ones(4), name="next"))
""",
    # Many small ones from several threads.
    "threads": """
import threading
hvd.init()
def loop(t):
    for i in range(10**9):
        hvd.allreduce(np.ones(4), name=f"thread{t}")
threads = [threading.Thread(target=lambda t=t: attempt(lambda: loop(t))) for t in range(4)]
say("ready")
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
    # Many small ones that all know: they need no plan.
    "small": """
hvd.init()
def loop():
    for i in range(10**9):
        hvd.allreduce(np.ones(4), name="small")
        if i == 100:
            say("ready")
attempt(loop)
""",
    # The set is registered; the victim never opens its links.
    "linking": """
from horovod.common import set_links
hvd.init(process_sets="dynamic")
if hvd.rank() == hvd.size() - 1:
    exchange = set_links._exchange
    set_links._exchange = lambda *args: (exchange(*args), say("ready"), time.sleep(1000))
else:
    say("ready")
attempt(lambda: hvd.add_process_set([0, 2]))
""",
}
LAYOUTS = {
    "one host": (["localhost"] * 3),
    "two hosts": (["localhost", "localhost", "far"]),
    "leader of a host": (["localhost", "far", "far"]),
}


@pytest.fixture
def clean(tmp_path):
    """The workers' own temporary directory, which must be empty in the end, as must /dev/shm."""

    def shared():
        return {name for name in os.listdir("/dev/shm") if "horovod" in name or name.startswith("hvd")}

    before = shared()
    yield {"TMPDIR": str(tmp_path)}
    assert os.listdir(tmp_path) == []
    assert shared() <= before


GRID = [
    *((s, "one host") for s in SITUATIONS if s != "linking"),
    *((s, k) for s in ("pending", "busy", "small", "linking") for k in list(LAYOUTS)[1:]),
]


@pytest.mark.parametrize("situation, layout", GRID)
def test_all_others_fail_and_name_the_dead_rank_and_host(situation, layout, clean):
    hosts = LAYOUTS[layout]
    victim = 1 if layout == "leader of a host" and situation in ("busy", "small", "threads") else 2
    with Processes(SITUATIONS[situation], 3, env=clean, hosts=hosts) as ranks:
        for rank in range(3):
            assert ranks.heard(rank) == "ready"
        time.sleep(0.3)  # let them get into it
        ranks.kill(victim)
        killed = time.time()
        for rank in {0, 1, 2} - {victim}:
            for _ in range(4 if situation == "threads" else 1):
                report = ranks.heard(rank)
                assert report["error"] == "HorovodInternalError", report
                assert f"rank {victim}" in report["text"].lower(), report["text"]
                assert hosts[victim] in report["text"], report["text"]
                if situation != "idle":
                    assert report["at"] - killed < 30, "seen by a timeout, not by the closed connection"
        codes = ranks.finish()
        assert codes[victim] == -9 and [c for i, c in enumerate(codes) if i != victim] == [0, 0]


def test_the_coordinator_may_die_too():
    with Processes(SITUATIONS["busy"], 3) as ranks:
        for rank in range(3):
            assert ranks.heard(rank) == "ready"
        time.sleep(0.3)
        ranks.kill(0)
        for rank in (1, 2):
            report = ranks.heard(rank)
            assert report["error"] == "HorovodInternalError" and "rank 0" in report["text"].lower(), report


def test_everybody_killed_leaves_nothing(clean):
    with Processes(SITUATIONS["busy"], 3, env=clean) as ranks:
        for rank in range(3):
            assert ranks.heard(rank) == "ready"
        time.sleep(0.2)
        for rank in range(3):
            ranks.kill(rank)
        assert ranks.finish() == [-9, -9, -9]


def test_a_clean_shutdown_is_not_a_death():
    script = """
hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    hvd.shutdown()
    say("left")
else:
    time.sleep(0.5)
    attempt(lambda: hvd.allreduce(np.ones(4), name="too late"))
    say([hvd.is_initialized(), hvd.rank()])
    hvd.shutdown()
    say(hvd.is_initialized())
"""
    with Processes(script, 2) as ranks:
        assert ranks.heard(1) == "left"
        report = ranks.heard(0)
        assert report["error"] == "HorovodInternalError"
        assert "Horovod has been shut down" in report["text"], report["text"]
        assert ranks.heard(0) == [True, 0] and ranks.heard(0) is False
        assert ranks.finish() == [0, 0]


def test_survivors_can_form_a_new_world_alone():
    script = """
hvd.init()
say("ready")
if hvd.rank() == 1:
    time.sleep(1000)
attempt(lambda: hvd.allreduce(np.ones(4), name="x"))
hvd.shutdown()
for name in list(os.environ):
    if name.startswith("HOROVOD_"):
        del os.environ[name]
hvd.init()
say([hvd.size(), hvd.allreduce([3.0]).tolist()])
"""
    with Processes(script, 2) as ranks:
        assert [ranks.heard(rank) for rank in range(2)] == ["ready"] * 2
        ranks.kill(1)
        assert ranks.heard(0)["error"] == "HorovodInternalError"
        assert ranks.heard(0) == [1, [3.0]]


def test_ctrl_c_interrupts_a_wait():
    import signal

    script = """
import threading
from horovod.common import observation
hvd.init()
if hvd.rank() == 1:
    time.sleep(1000)
def tell():
    while "in waits" not in observation.stacks() or observation.now()["state"] != "waiting":
        time.sleep(0.01)
    say("waits")
def waits():
    hvd.allreduce(np.ones(4), name="outstanding")
threading.Thread(target=tell, daemon=True).start()
try:
    waits()
except KeyboardInterrupt:
    say("interrupted")
os._exit(0)
"""
    with Processes(script, 2) as ranks:
        assert ranks.heard(0) == "waits"
        ranks.send(0, signal.SIGINT)
        assert ranks.heard(0) == "interrupted"


def test_who_is_left_over_sleeps():
    """The dead rank's connections have something to say for ever: that it closed them."""
    script = """
hvd.init()
say("ready")
attempt(lambda: hvd.allreduce(np.ones(4), name="waits") if hvd.rank() == 0 else time.sleep(1000))
def work_in_a_while():
    before = time.process_time()
    time.sleep(0.5)
    return time.process_time() - before
say(min(work_in_a_while() for _ in range(3)))
"""
    with Processes(script, 2, hosts=["localhost", "far"]) as ranks:
        assert [ranks.heard(rank) for rank in range(2)] == ["ready"] * 2
        ranks.kill(1)
        assert ranks.heard(0)["error"] == "HorovodInternalError"
        assert ranks.heard(0) < 0.05  # seconds of work, however busy the machine is


@pytest.mark.parametrize("hosts", [["localhost"] * 2, ["localhost", "far"]], ids=["one host", "two hosts"])
def test_a_forked_child_does_not_hide_the_death_of_its_parent(hosts):
    """Data loader workers inherit the sockets of their rank; it must be missed although they live on."""
    script = """
hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    say(child)
    time.sleep(1000)
say("ready")
attempt(lambda: hvd.allreduce(np.ones(4), name="waits"))
"""
    with Processes(script, 2, hosts=hosts) as ranks:
        child = ranks.heard(1)
        try:
            assert ranks.heard(0) == "ready"
            ranks.kill(1)
            report = ranks.heard(0)
            assert report["error"] == "HorovodInternalError" and "rank 1" in report["text"].lower(), report
        finally:
            os.kill(child, 9)
