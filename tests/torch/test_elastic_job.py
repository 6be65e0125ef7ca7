# SPDX-License-Identifier: Apache-2.0
"""PyTorch in an elastic job: samplers, SyncBatchNorm and learning rates follow the number of ranks."""

from __future__ import annotations

import os
import sys

import pytest
from elastic_jobs import ElasticRun
from launching import ROOT

SCRIPT = os.path.join(ROOT, "tests", "runner", "scripts", "elastic_torch.py")


@pytest.mark.parametrize("flags", [[], ["--autotune"]], ids=["plain", "test_issue_2835"])
def test_issue_2100_2484_3264(tmp_path, flags):
    """A rank is killed in the middle of an epoch, another joins in another: survivors do not abort."""
    words = ["-np", "3", "--min-np", "1", "--max-np", "3", *flags]
    with ElasticRun(tmp_path, ["localhost:3"], *words, command=[sys.executable, SCRIPT, "0.15"]) as job:
        job.wait_for("train", count=3, size=3)
        job.wait_for_steps(2)
        victim = next(one["pid"] for one in job.matching("train", size=3) if one["rank"] == 1)
        os.kill(victim, 9)
        job.wait_for("train", count=2, size=2)
        results = job.finish(120)
    assert results and all(one["alike"] for one in results), "the ranks have the same weights"
    for epoch in results[0]["seen"]:
        assert min(epoch) == 1, "no sample is lost"
        assert sum(epoch) - len(epoch) < 3, "only a last batch is filled up"
    rates = {(one["size"], round(one["lr"], 6)) for one in job.matching("step")}
    assert rates == {(size, 0.01 * size) for size, _ in rates}, "the learning rate follows the size"
    assert (2, 0.02) in rates and (3, 0.03) in rates
    assert "samples left in this epoch" in job.text()
