# SPDX-License-Identifier: Apache-2.0
"""Ranks report only where the launcher wants to know, and whatever happens to reports, training goes on."""

from __future__ import annotations

import sys

import pytest
from launching import horovodrun

THREADS = """
import threading
import horovod.numpy as hvd
hvd.init()
print("reports", sum(one.name == "horovod-reporter" for one in threading.enumerate()))
hvd.shutdown()
hvd.init()
print("reports", sum(one.name == "horovod-reporter" for one in threading.enumerate()))
"""


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("flags, expected", [([], "reports 0"), (["--observe"], "reports 1")])
def test_one_thread_if_asked_for_else_none(size, flags, expected):
    done = horovodrun("-np", str(size), *flags, sys.executable, "-c", THREADS)
    assert done.returncode == 0, done.stderr
    assert [line.split(":", 1)[1] for line in done.stdout.splitlines()] == [expected] * 2 * size


BROKEN = """
import threading
import horovod.numpy as hvd
from horovod.common import observation
tried = threading.Event()
def snapshot():
    tried.set()
    raise RuntimeError("no snapshot today")
observation.snapshot = snapshot
hvd.init()
assert tried.wait(30)
print(hvd.allreduce([1.0], op=hvd.Sum))
"""


def test_a_rank_that_cannot_report_says_so_and_trains_on():
    done = horovodrun("-np", "2", "--observe", sys.executable, "-c", BROKEN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[2.]") == 2
    assert "this rank reports no more to the launcher" in done.stderr and "no snapshot today" in done.stderr


OUTSIDE = """
import horovod.numpy as hvd
from horovod.common import reporter
hvd.init()
print(sorted(reporter._snapshot()["now"]))
hvd.shutdown()
made = reporter._snapshot()
print(made["now"], made["samples"], made["stack"][0].endswith("in <module>"))
hvd.count_samples(3)
hvd.count_samples(4)
print(reporter._snapshot()["samples"])
"""


def test_what_is_reported_inside_and_outside_of_a_world():
    done = horovodrun("-np", "1", sys.executable, "-c", OUTSIDE)
    inside, outside, counted = [line.split(":", 1)[1] for line in done.stdout.splitlines()]
    assert inside == "['kind', 'missing', 'name', 'queue', 'since_s', 'state']", done.stderr
    assert outside == "{'state': 'starting'} None True" and counted == "7"
