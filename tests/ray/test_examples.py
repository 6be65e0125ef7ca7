# SPDX-License-Identifier: Apache-2.0
"""The examples for Ray, on a running cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from world import ROOT


def run(cluster, name, *options, cwd=None):
    command = [sys.executable, os.path.join(ROOT, "examples", name), "--address", cluster.address, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=cwd)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    "name, options",
    [
        ("ray_pytorch_mnist.py", []),
        ("ray_pytorch_mnist.py", ["--min-workers", "2", "--max-workers", "2"]),
        ("ray_keras_mnist.py", ["--backend", "jax"]),
    ],
    ids=["torch", "torch elastic", "keras"],
)
def test_digits_are_learnt(ray_cluster, name, options):
    text = run(ray_cluster, name, *options)
    accuracies = re.findall(r"^rank (\d): loss [\d.]+, test accuracy ([\d.]+)$", text, re.MULTILINE)
    assert len(accuracies) == 2 and all(float(one) > 0.85 for _, one in accuracies), text
    assert len({one for _, one in accuracies}) == 1, text  # the same weights everywhere
    if options and "workers" in options[0]:
        assert len(re.findall(r"'epoch': (\d)", text)) >= 5, text


def test_ray_data_gives_every_rank_as_many_steps(ray_cluster):
    text = run(ray_cluster, "ray_jax_mnist.py")
    assert re.findall(r"rank (\d): (\d+) steps", text) == [("0", "84"), ("1", "84")], text
    losses = {float(one) for one in re.findall(r"loss ([\d.]+)", text)}
    assert len(losses) == 1 and losses.pop() < 0.7, text


def test_trials_that_a_scheduler_stops_leave_nothing(ray_cluster, tmp_path):
    text = run(ray_cluster, "ray_tune.py", "--storage", str(tmp_path), "--trials", "2", "--concurrent", "1")
    epochs = [int(one) for one in re.findall(r"(\d+) epochs", text)]
    # The losses differ from the second epoch on; there the worse trial ends. ray_cluster sees what is left.
    assert epochs == [8, 2], text
