# SPDX-License-Identifier: Apache-2.0
"""The example scripts run and learn, on one process and on two."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from world import ROOT, worker_env

RUN = {1: [sys.executable], 2: [sys.executable, "-m", "horovod.runner.launch", "-np", "2", sys.executable]}


def run_example(name, size, *options):
    """What the script printed."""
    done = subprocess.run(
        [*RUN[size], os.path.join(ROOT, "examples", name), *options],
        env=worker_env({"JAX_PLATFORMS": "cpu"}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    ("name", "size"), [("jax_mnist.py", 1), ("jax_mnist.py", 2), ("jax_flax_nnx_mnist.py", 2)]
)
def test_digits(name, size):
    if "flax" in name:
        pytest.importorskip("flax", reason="flax is not installed")
    out = run_example(name, size, "--epochs", "6")
    accuracies = [float(a) for a in re.findall(r"test accuracy ([\d.]+)", out)]
    assert len(accuracies) == 6 and accuracies[-1] > 0.85, out


def test_synthetic_benchmark():
    out = run_example("jax_synthetic_benchmark.py", 2, "--layers", "1", "--width", "32", "--rounds", "2")
    assert out.count("round") == 2 and "all 2:" in out, out
