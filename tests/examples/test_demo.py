# SPDX-License-Identifier: Apache-2.0
"""The demo: it says what is missing, and sums up what it saw."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys

import pytest
from world import ROOT, worker_env

TOOLS = "sh uname dirname nproc mktemp rm df awk date find cat head grep ls touch tail".split()


@pytest.fixture
def machine(tmp_path):
    """A machine with the shell's usual tools and nothing else; returns (folder of programs, run)."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in TOOLS:
        path = shutil.which(name)
        if path:
            (programs / name).symlink_to(path)

    def run(**variables):
        env = {"PATH": str(programs), "DEMO_VENV": str(tmp_path / "venv"), **variables}
        script = os.path.join(ROOT, "scripts", "demo.sh")
        command = [str(programs / "sh"), script]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)

    return programs, run


def program(folder, name, text):
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_no_python(machine):
    done = machine[1]()
    assert done.returncode == 1 and "there is no python3" in done.stderr, done.stderr
    assert "Install Python 3.9 or newer" in done.stderr


def test_old_python(machine):
    folder, run = machine
    program(folder, "python3", 'case "$1" in --version) echo Python 3.7.1;; *) exit 1;; esac')
    done = run()
    assert done.returncode == 1 and "Python 3.7.1 is too old; 3.9 or newer is needed" in done.stderr


def test_no_venv_module(machine):
    folder, run = machine
    program(folder, "python3", 'case "$2" in *venv*) exit 1;; *) exit 0;; esac')
    done = run()
    assert done.returncode == 1 and "cannot make virtual environments" in done.stderr
    assert "apt install python3-venv" in done.stderr


def test_no_compiler(machine):
    done = machine[1](PYTHON=sys.executable)
    assert done.returncode == 1 and "there is no C++ compiler (c++)" in done.stderr
    assert "apt install g++" in done.stderr


def test_old_compiler(machine):
    folder, run = machine
    program(folder, "c++", "exit 1")
    done = run(PYTHON=sys.executable)
    assert done.returncode == 1 and "c++ cannot compile C++20" in done.stderr


def test_full_disk(machine):
    folder, run = machine
    program(folder, "c++", "exit 0")
    (folder / "df").unlink()
    program(folder, "df", "echo head; echo /dev/x 100 90 10 90% /")
    done = run(PYTHON=sys.executable)
    assert done.returncode == 1 and "10 MB are free here" in done.stderr
    assert "DEMO_VENV=/path make demo" in done.stderr


def test_summary_and_plot(tmp_path):
    for module in ("torch", "sklearn", "matplotlib"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed in {sys.prefix}")
    script = os.path.join(ROOT, "scripts", "demo.py")
    command = [sys.executable, script, "--epochs", "6", "--out", str(tmp_path)]
    done = subprocess.run(command, env=worker_env(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\r" not in done.stdout  # not a terminal: plain lines
    ends = ("1 process    epoch  6/6", "2 processes  epoch  6/6")
    for text in (*ends, "images/s", "% of the time", "demo.png"):
        assert text in done.stdout, text
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    runs = json.loads((tmp_path / "demo.json").read_text())
    for epochs in runs.values():
        assert epochs[-1]["loss"] < 0.5 * epochs[0]["loss"] and epochs[-1]["accuracy"] > 0.85
    # The same batches and averaged gradients: the same training.
    for one, two in zip(runs["1"], runs["2"]):
        assert one["loss"] == pytest.approx(two["loss"], rel=0.05)
