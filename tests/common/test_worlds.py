# SPDX-License-Identifier: Apache-2.0
"""What tests are told by worlds that hang, and by limits of time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import world
from native_stacks import threads_of_ours
from time_limits import time_limit


def one_fails_one_waits(name):
    import numpy as np

    import horovod.numpy as hvd

    if hvd.rank() == 0:
        raise ValueError("not on this rank")
    hvd.allreduce(np.ones(3), name=name)


def pid_and_size():
    import os

    import horovod.numpy as hvd

    return os.getpid(), hvd.size()


def test_a_rank_that_waits_for_one_that_failed_says_where(monkeypatch):
    monkeypatch.setattr(world, "AFTER_A_FAILURE", 1.0)
    waiting = world.World(2)
    pids = [pid for pid, _ in waiting.run(pid_and_size)]
    with pytest.raises(world.RanksFailed) as failed:
        waiting.run(one_fails_one_waits, "awaited")
    text = str(failed.value)
    assert "rank 0:" in text and "ValueError: not on this rank" in text
    assert "rank 1 did not come back" in text and "in one_fails_one_waits" in text
    assert waiting.broken
    assert not any(alive(pid) for pid in pids)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def sleep_for_ever():
    import time

    time.sleep(1000)


def test_a_world_that_hangs_is_given_up_in_any_thread():
    hanging, said = world.World(1), []

    def call():
        try:
            hanging.run(sleep_for_ever, timeout=1)
        except world.RanksFailed as error:
            said.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(100)
    assert len(said) == 1 and "in sleep_for_ever" in said[0]


def test_limits_inside_of_each_other():
    around = signal.getitimer(signal.ITIMER_REAL)[0]  # this test's own
    with pytest.raises(TimeoutError, match="outer did not end within 0 s"):
        with time_limit(0.3, "outer"), time_limit(60, "inner"):
            time.sleep(30)
    with time_limit(60, "outer"):
        with pytest.raises(TimeoutError, match="inner"), time_limit(0.2, "inner"):
            time.sleep(30)
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        assert 0 < left < 60
    assert 0 < around - signal.getitimer(signal.ITIMER_REAL)[0] < 60


HANGS = """
import time

def test_hangs():
    time.sleep(1000)

def test_after_it():
    assert True
"""


def test_a_test_that_hangs_fails_and_the_next_one_runs(tmp_path):
    (tmp_path / "test_it.py").write_text(HANGS)
    support = os.path.dirname(os.path.abspath(world.__file__))
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path[:0] = [{world.ROOT!r}, {support!r}]\n"
        "from tests import conftest\nconftest.TEST_LIMIT = 1.0\n"
        "pytest_runtest_call = conftest.pytest_runtest_call\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "TimeoutError: test_hangs did not end within 1 s" in done.stdout


GDB = """\
Using host libthread_db library
Thread 2 (Thread 0x7f (LWP 12) "python"):
#0  0x00 in poll () from /lib/libc.so.6
#1  0x01 in hvd::Driver::run () from /somewhere/horovod/_lib/libhorovod.so

Thread 1 (Thread 0x7e (LWP 11) "python"):
#0  0x00 in select () from /lib/libc.so.6
[Inferior 1 detached]
"""


def test_of_native_threads_only_ours_are_shown():
    shown = threads_of_ours(GDB)
    assert shown.startswith("Thread 2 ") and "hvd::Driver::run" in shown
    assert "Thread 1 " not in shown and "select" not in shown
