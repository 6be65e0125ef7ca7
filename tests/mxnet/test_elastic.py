# SPDX-License-Identifier: Apache-2.0
"""MXNet in an elastic job: parameters and optimizers survive, averages follow the number of ranks."""

from __future__ import annotations

import json
import os
import sys

from launching import ROOT, horovodrun

SCRIPT = os.path.join(ROOT, "tests", "runner", "scripts", "elastic_mxnet.py")


def test_a_rank_is_killed(tmp_path):
    words = ["-np", "2", "--min-np", "1", sys.executable, SCRIPT, str(tmp_path / "died")]
    done = horovodrun(*words, timeout=120)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line.partition(":")[2]) for line in done.stdout.splitlines() if '"result"' in line]
    assert len(results) == 2 and results[0]["step"] >= 20
    for one in results:
        assert one["w"] == [1.0 - 0.5 * one["step"]] * 2, (
            "from rank 0's start, the same step whatever the size"
        )
    assert sorted(one["sizes"] for one in results) == [[2], [2, 1, 2]]
