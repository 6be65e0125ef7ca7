# SPDX-License-Identifier: Apache-2.0
"""The examples for Spark run, and what they train has learnt something."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from world import ROOT, worker_env


def run(name, folder, *options):
    """What an example prints."""
    words = [
        sys.executable,
        os.path.join(ROOT, "examples", name),
        "--work-dir",
        str(folder / "work"),
        *options,
    ]
    env = worker_env({"PYSPARK_PYTHON": sys.executable})
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def numbers(text, label):
    return [float(number) for number in re.findall(rf"{label} ([\d.]+)", text)]


@pytest.mark.parametrize(
    ("name", "options"),
    [("spark_keras_digits.py", ()), ("spark_torch_digits.py", ("--backward-passes-per-step", "2"))],
)
def test_digits(tmp_path, name, options):
    text = run(name, tmp_path, "--epochs", "4", *options)
    losses, (accuracy,) = numbers(text, "loss"), numbers(text, "test accuracy")
    assert losses[-1] < 0.5 * losses[0] and accuracy > 0.8, text


def test_sales(tmp_path):
    text = run("spark_keras_sales.py", tmp_path, "--shops", "20", "--days", "500", "--forecast", "sales.csv")
    (error,) = numbers(text, "relative error")
    assert error < 0.3, text
    lines = (tmp_path / "sales.csv").read_text().splitlines()
    assert lines[0] == "shop,date,sales" and len(lines) == 1 + 20 * 14
    assert all(1_000 < float(line.split(",")[2]) < 30_000 for line in lines[1:])
