# SPDX-License-Identifier: Apache-2.0
"""PyTorch in an elastic job: samplers, SyncBatchNorm and learning rates follow the number of ranks."""

from __future__ import annotations

import os
import sys

from elastic_jobs import ElasticRun
from launching import ROOT

SCRIPT = os.path.join(ROOT, "tests", "runner", "scripts", "elastic_torch.py")


def train_and_hurt(tmp_path, *flags):
    """A rank is killed in the middle of an epoch, and replaced; the results of those who finish."""
    words = ["-np", "3", "--min-np", "1", "--max-np", "3", *flags]
    with ElasticRun(tmp_path, ["localhost:3"], *words, command=[sys.executable, SCRIPT, "0.15"]) as job:
        job.wait_for("train", count=3, size=3)
        job.wait_for_steps(2)
        victim = next(one["pid"] for one in job.matching("train", size=3) if one["rank"] == 1)
        os.kill(victim, 9)
        job.wait_for("train", count=2, size=2)
        return job.finish(120), job


def test_issue_2484(tmp_path):
    """Survivors do not end with an uncaught exception; what they trained is what it must be."""
    results, job = train_and_hurt(tmp_path)
    assert results and all(one["alike"] for one in results), "the ranks have the same weights"
    for epoch in results[0]["seen"]:
        assert min(epoch) == 1, "no sample is lost"
        assert sum(epoch) - len(epoch) < 3, "only a last batch is filled up"
    rates = {(one["size"], round(one["lr"], 6)) for one in job.matching("step")}
    assert rates == {(size, 0.01 * size) for size, _ in rates}, "the learning rate follows the size"
    assert {(2, 0.02), (3, 0.03)} <= rates
    assert "samples left in this epoch" in job.text()


def test_issue_2835_and_2100(tmp_path):
    """With autotuning; the model has SyncBatchNorm, whose statistics are those of the ranks there are."""
    results, _ = train_and_hurt(tmp_path, "--autotune")
    assert results and all(one["alike"] for one in results)
