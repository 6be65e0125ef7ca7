# SPDX-License-Identifier: Apache-2.0
"""A rank that leaves says why: every operation of the others fails with who left, where, and with what."""

from __future__ import annotations

import pytest
from processes import Processes

SCRIPT = """
from horovod.common import _native
hvd.init()
hvd.barrier()
say("ready")
if hvd.rank() == 2:
    _native.lib().hvd_stop(REASON)
    say("left")
else:
    attempt(lambda: hvd.allreduce(np.ones(4), name="outstanding"))
    attempt(lambda: hvd.allreduce(np.ones(4), name="later"))
"""
LAYOUTS = [["node1"] * 3, ["node1", "node1", "node2"], ["node1", "node2", "node2"]]


@pytest.mark.parametrize("hosts", LAYOUTS, ids=["one host", "leader leaves", "local rank leaves"])
@pytest.mark.parametrize(
    "reason, shown",
    [
        (b"ValueError: no such file (train.py:41)", "left: ValueError: no such file (train.py:41)"),
        (None, "left in good order"),
        (b"x" * 5000, "left: " + "x" * 500),
    ],
    ids=["exception", "in order", "too long"],
)
def test_the_others_say_which_rank_left_and_why(hosts, reason, shown):
    with Processes(f"REASON = {reason!r}\n" + SCRIPT, 3, hosts=hosts) as ranks:
        for rank in range(3):
            assert ranks.heard(rank) == "ready"
        assert ranks.heard(2) == "left"
        for rank in (0, 1):
            for _ in range(2):
                report = ranks.heard(rank)
                assert report["error"] == "HorovodInternalError", report
                assert report["text"].startswith("Horovod has been shut down. This was caused by"), report
                assert f"rank 2 on {hosts[2]} {shown}" in report["text"], report


def test_the_first_to_leave_is_the_one_that_is_named():
    """Rank 1 fails, rank 0 fails because of it and leaves too: rank 2 hears of rank 1 all the same."""
    script = """
from horovod.common import _native
hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    _native.lib().hvd_stop(b"KeyError: 'data'")
else:
    attempt(lambda: hvd.allreduce(np.ones(4), name="never"))
    _native.lib().hvd_stop(b"HorovodInternalError: because of another")
    sys.stdin.read(0)
"""
    with Processes(script, 3, hosts=["node1", "node2", "node3"]) as ranks:
        for rank in (0, 2):
            report = ranks.heard(rank)
            assert "rank 1 on node2 left: KeyError: 'data'" in report["text"], report
