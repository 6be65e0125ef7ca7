# SPDX-License-Identifier: Apache-2.0
"""A frozen or forgetful rank: the stall watch names it, its tensors and its line, and can end the job."""

from __future__ import annotations

import pytest
from processes import Processes

WAIT = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1"}


def test_a_forgetful_rank_is_named_with_tensor_and_line_and_the_job_goes_on(tmp_path):
    script = """
hvd.init()
def busy_elsewhere():
    while not os.path.exists(os.environ["GO"]):
        time.sleep(0.01)
if hvd.rank() == 1:
    busy_elsewhere()
attempt(lambda: hvd.allreduce(np.ones(4), name="gradient"))
"""
    with Processes(script, 2, env={**WAIT, "GO": str(tmp_path / "go")}) as ranks:
        log = ranks.wait_for_stderr(0, "in busy_elsewhere")  # the stuck line
        (tmp_path / "go").touch()
        assert ranks.heard(0)["error"] is None and ranks.heard(1)["error"] is None
        assert ranks.finish() == [0, 0]
    assert (
        "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks" in log
    )
    assert "Missing ranks" in log
    assert "1: [allreduce.gradient" in log, log


def test_a_frozen_rank_is_named_and_the_job_goes_on_when_it_wakes():
    script = """
hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
attempt(lambda: hvd.allreduce(np.ones(4), name="frozen"))
"""
    with Processes(script, 2, env=WAIT) as ranks:
        ranks.wait_for_stderr(0, "Missing ranks")
        log = ranks.wait_for_stderr(0, "1: [allreduce.frozen")
        assert "One or more tensors were submitted" in log
        ranks.wake(1)
        assert ranks.heard(0)["error"] is None and ranks.heard(1)["error"] is None


@pytest.mark.parametrize("hosts", [["here", "here"], ["here", "far"]], ids=["one host", "two hosts"])
def test_a_rank_that_freezes_among_small_calls_is_named_and_the_job_goes_on_when_it_wakes(hosts):
    script = """
import threading
hvd.init()
among, awake = threading.Event(), np.zeros(1, np.float32)
def freeze():
    among.wait()
    os.kill(os.getpid(), signal.SIGSTOP)
    awake[0] = 1
if hvd.rank() == 1:
    threading.Thread(target=freeze, daemon=True).start()
for i in range(10**9):
    if hvd.allreduce(awake, op=hvd.Sum, name="small")[0]:
        break
    if i == 100:
        among.set()
say(int(hvd.metrics()["batches"]) > 100)
"""
    with Processes(script, 2, env=WAIT, hosts=hosts) as ranks:
        ranks.wait_for_stderr(0, "Missing ranks")
        ranks.wait_for_stderr(0, "1: [allreduce.small")
        ranks.wake(1)
        assert [ranks.heard(rank) for rank in range(2)] == [True] * 2


@pytest.mark.parametrize("warning, end, late", [("1", "3", "6"), ("0", "1", "3")], ids=["warned", "unwarned"])
def test_a_stall_longer_than_the_limit_ends_the_job_on_all_ranks(warning, end, late):
    script = """
hvd.init()
say("ready")
if hvd.rank() == 1:
    time.sleep(float(os.environ["LATE"]))
    attempt(lambda: hvd.allreduce(np.ones(4), name="late"))
else:
    attempt(lambda: hvd.allreduce(np.ones(4), name="stalled"))
"""
    env = {
        "HOROVOD_STALL_CHECK_TIME_SECONDS": warning, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": end, "LATE": late,
    }  # fmt: skip
    with Processes(script, 3, env=env) as ranks:
        for rank in range(3):
            assert ranks.heard(rank) == "ready"
        for rank in range(3):
            report = ranks.heard(rank)
            assert report["error"] == "HorovodInternalError", (rank, report)
        log = ranks.wait_for_stderr(0, "Will shutdown")
    assert "1!: [allreduce.stalled" in log, log


def test_the_watch_can_be_turned_off():
    script = """
hvd.init()
if hvd.rank() == 1:
    time.sleep(3)
attempt(lambda: hvd.allreduce(np.ones(4), name="quiet"))
"""
    with Processes(script, 2, env=dict(WAIT, HOROVOD_STALL_CHECK_DISABLE="1")) as ranks:
        assert ranks.heard(0)["error"] is None
        assert ranks.finish() == [0, 0]
        assert "Missing ranks" not in ranks.stderr(0)


def test_a_shutdown_time_below_the_warning_time_is_refused_with_a_warning():
    script = "hvd.init()\nsay('ready')\n"
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "60", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "5"}
    with Processes(script, 2, env=env) as ranks:
        assert ranks.heard(0) == "ready"
        ranks.finish()
        assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is less than" in ranks.stderr(0)
