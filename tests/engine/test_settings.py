# SPDX-License-Identifier: Apache-2.0
"""Settings in the engine: floors are enforced by name, the smallest values work, no locale changes them."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from processes import Processes
from tests_support import run_world

ATTEMPT_INIT = "attempt(hvd.init)\n"


@pytest.mark.parametrize(
    "variable, value, text",
    [
        ("HOROVOD_SHM_SLOT_BYTES", "16383", "HOROVOD_SHM_SLOT_BYTES=16383 must be in [16384, "),
        ("HOROVOD_SHM_SLOT_BYTES", "-1", "HOROVOD_SHM_SLOT_BYTES=-1 must be in [16384, "),
        ("HOROVOD_SPIN_US", "-5", "HOROVOD_SPIN_US=-5"),
        ("HOROVOD_LINK_SECURITY", "perfect", "must be one of control, integrity, encrypt"),
    ],
)
def test_a_value_below_what_is_safe_fails_init_by_name(variable, value, text):
    with Processes(ATTEMPT_INIT, 2, env={variable: value}) as ranks:
        for rank in range(2):
            report = ranks.heard(rank)
            assert report["error"] in ("HorovodInternalError", "ValueError"), report
            assert text in report["text"], report
        assert ranks.finish() == [0, 0]


def all_kinds_with_small_slots():
    """Batches of every size around that of a slot, which once were packed beyond its end."""
    import numpy as np

    import horovod.numpy as hvd

    me, n = hvd.rank(), hvd.size()
    wrong = []
    for count in (1, 1000, 4096, 4097, 10000):
        x = np.arange(count, dtype=np.float32)
        if not (hvd.allreduce(x, op=hvd.Sum, name=f"r{count}") == x * n).all():
            wrong.append(("allreduce", count))
        rows = hvd.allgather(np.full(count * (me + 1), me, np.float32), name=f"g{count}")
        if rows.tolist() != [float(r) for r in range(n) for _ in range(count * (r + 1))]:
            wrong.append(("allgather", count))
        if not (hvd.broadcast(x * (me + 1), 1, name=f"b{count}") == x * 2).all():
            wrong.append(("broadcast", count))
        got = hvd.alltoall(np.repeat(x[:, None], n, 1).T.copy(), name=f"a{count}")
        if not (got == x).all():
            wrong.append(("alltoall", count))
    groups = hvd.grouped_allreduce([np.ones(i, np.float32) for i in range(60)], op=hvd.Sum, name="many")
    if any((g != n).any() for g in groups):
        wrong.append("grouped")
    return wrong


@pytest.mark.parametrize("hosts", [None, "localhost:2,127.0.0.1:1"], ids=["one host", "two hosts"])
def test_the_smallest_slots_work(hosts):
    env = {"HOROVOD_SHM_SLOT_BYTES": "16384"}
    results = run_world(_initialised(all_kinds_with_small_slots), 3, env=env, hosts=hosts)
    assert results == [[]] * 3


def _initialised(body):
    def run():
        import horovod.numpy as hvd

        hvd.init()
        return body()

    return run


TURKISH = """
import locale
locale.setlocale(locale.LC_ALL, "")
assert "I".lower() == "i" and locale.localeconv()["decimal_point"] == ","
hvd.init()
say(hvd.allreduce([0.5], op=hvd.Sum).tolist())
hvd.barrier()
"""


def test_no_locale_changes_what_the_engine_reads(tmp_path):
    """In a Turkish locale the lower case of I is not i, and the decimal point is a comma."""
    if shutil.which("localedef") is None or not os.path.exists("/usr/share/i18n/locales/tr_TR"):
        pytest.skip("no sources of locales (Debian: locales)")
    subprocess.run(
        ["localedef", "-i", "tr_TR", "-f", "ISO-8859-9", str(tmp_path / "tr_TR")], check=False, timeout=60
    )
    env = {
        "LOCPATH": str(tmp_path), "LC_ALL": "tr_TR", "PYTHONUTF8": "1",
        "HOROVOD_LOG_LEVEL": "INFO", "HOROVOD_TIMELINE": "DYNAMIC", "HOROVOD_CYCLE_TIME": "0.5",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "1.5", "HOROVOD_LINK_SECURITY": "INTEGRITY",
    }  # fmt: skip
    with Processes(TURKISH, 3, env=env, hosts=["a", "a", "b"]) as ranks:
        assert [ranks.heard(rank) for rank in range(3)] == [[1.5]] * 3
        assert ranks.finish() == [0, 0, 0]
        logged = "".join(ranks.errors[0])
    assert "Hosts run different numbers of ranks" in logged, "INFO was not understood"


def test_log_lines_pad_microseconds_with_zeros():
    import re

    with Processes("hvd.init()\n", 3, env={"HOROVOD_LOG_LEVEL": "debug"}, hosts=["a", "a", "b"]) as ranks:
        assert ranks.finish() == [0, 0, 0]
        lines = [line for rank in range(3) for line in ranks.errors[rank] if "generation" in line]
    assert len(lines) == 3
    for line in lines:
        assert re.match(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: D engine\.cc:\d+\] \[\d\]: ", line), line


def test_a_cache_that_is_too_small_is_told_once():
    script = """
hvd.init()
for turn in range(3):
    for name in "abcdef":
        hvd.allreduce(np.ones(4), name=name)
"""
    with Processes(script, 2, env={"HOROVOD_CACHE_CAPACITY": "2"}) as ranks:
        assert ranks.finish() == [0, 0]
        assert ranks.stderr(0).count("A response has been evicted from cache") == 1
        assert "evicted" not in ranks.stderr(1)
