# SPDX-License-Identifier: Apache-2.0
"""Links of process sets that are added while the job runs: if one rank cannot open its own, all hear why."""

from __future__ import annotations

import pytest
from processes import Processes

SCRIPT = """
import resource
os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
hvd.init()
if hvd.rank() == 2:
    {mischief}
attempt(lambda: hvd.add_process_set([0, 2]))
attempt(lambda: hvd.allreduce(np.ones(1)))
"""
MISCHIEF = {
    "no descriptors": (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/proc/self/fd')) - 1,) * 2)",
        "descriptor",
    ),
    "a firewall": (
        "import horovod.rendezvous.planned_links as links\n"
        "    def open_link(*args): raise OSError('no route to host')\n"
        "    links.open_link = open_link",
        "no route to host",
    ),
    "a setting that became wrong": ("os.environ['HOROVOD_GLOO_TIMEOUT_SECONDS'] = 'long'", "=long is not a"),
}


@pytest.mark.parametrize("mischief, reason", MISCHIEF.values(), ids=MISCHIEF)
def test_a_rank_that_cannot_open_its_links_is_named_by_all_at_once(mischief, reason):
    """The others wait for it in different places, with time to spare."""
    patient = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "600"}
    hosts = ["node1", "node1", "node2"]
    with Processes(SCRIPT.format(mischief=mischief), 3, env=patient, hosts=hosts) as ranks:
        for rank in range(3):
            for heard in (ranks.heard(rank), ranks.heard(rank)):
                assert heard["error"] == "HorovodInternalError"
                assert "rank 2 on node2 could not open its links of process set [0, 2]" in heard["text"]
                assert reason in heard["text"]
