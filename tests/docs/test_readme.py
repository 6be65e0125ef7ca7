# SPDX-License-Identifier: Apache-2.0
"""The diffs of the README: what they start from runs alone, what they lead to runs on two ranks."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from world import ROOT, worker_env

# MXNet cannot live beside the other frameworks' NumPy, so it has an environment of its own.
PYTHONS = {"mxnet": os.path.join(ROOT, ".venv-mxnet", "bin", "python")}


def diffs():
    """Framework -> the lines of its diff."""
    with open(os.path.join(ROOT, "README.md")) as file:
        found = re.findall(r"^```diff\n(.*?)^```", file.read(), re.DOTALL | re.MULTILINE)
    return {re.search(r"\+import horovod\.(\w+)", text).group(1): text.splitlines() for text in found}


def side(lines, mark):
    """One side of a diff: the common lines, and those with this mark."""
    return "\n".join(line[1:] for line in lines if line[:1] in (" ", mark, ""))


def python_for(framework):
    python = PYTHONS.get(framework, sys.executable)
    if not os.path.exists(python):
        pytest.skip(f"{python} does not exist: no environment with {framework}")
    attempt = [python, "-c", f"import {framework}"]
    found = subprocess.run(attempt, capture_output=True, env=worker_env(), timeout=600)
    if found.returncode:
        pytest.skip(f"{framework} cannot be imported by {python}")
    return python


def test_all_frameworks_are_shown():
    assert set(diffs()) == {"torch", "tensorflow", "keras", "jax", "mxnet"}


@pytest.mark.parametrize("framework", ["torch", "tensorflow", "keras", "jax", "mxnet"])
def test_both_sides_run(framework, tmp_path):
    python = python_for(framework)
    lines = diffs()[framework]
    scripts = {mark: tmp_path / f"{'before' if mark == '-' else 'after'}.py" for mark in "-+"}
    for mark, path in scripts.items():
        end = "\nprint('end of the script', flush=True)\n"
        path.write_text(side(lines, mark) + end)
    env = worker_env({"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"})
    launcher = [python, "-m", "horovod.runner.launch", "-np", "2"]
    for command, count in (([python, str(scripts["-"])], 1), ([*launcher, python, str(scripts["+"])], 2)):
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-3000:]
        assert done.stdout.count("end of the script") == count
