# SPDX-License-Identifier: Apache-2.0
"""The command, from files to a folder with a page and pictures."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from launching import HOROVODRUN, environment, horovodrun
from timelines import Imagined

MODULE = [sys.executable, "-m", "horovod.runner.report"]
WITHOUT = """
import runpy, sys
sys.modules["matplotlib"] = None
sys.argv = ["report", *sys.argv[1:]]
runpy.run_module("horovod.runner.report", run_name="__main__")
"""


def run(*words, **options):
    return subprocess.run(
        words, capture_output=True, text=True, env=environment(), timeout=120, check=False, **options
    )


@pytest.fixture
def timeline(tmp_path):
    return Imagined(late={2: 8_000.0}, hosts=("node1", "node7")).write(tmp_path)[0]


def test_both_ways_to_call_it(timeline, tmp_path):
    first = run(*HOROVODRUN, "--report", timeline, "--report-output", "a/b", cwd=tmp_path)
    second = run(*MODULE, timeline, "--output", "c", cwd=tmp_path)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout.startswith("- Rank 2 on node7 made the others wait")
    assert first.stdout.splitlines()[-1] == "a/b/report.html and 4 PNG files beside it"
    assert first.stdout.replace("a/b", "c") == second.stdout
    expected = ["bandwidth.png", "report.html", "shares.png", "steps.png", "waits.png"]
    assert sorted(os.listdir(tmp_path / "a" / "b")) == sorted(os.listdir(tmp_path / "c")) == expected
    for name in expected:
        head = (tmp_path / "c" / name).read_bytes()[:15]
        assert head == b"<!DOCTYPE html>" or head.startswith(b"\x89PNG")


def test_without_matplotlib(timeline, tmp_path):
    done = run(sys.executable, "-c", WITHOUT, timeline, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (
        "horovod-report/report.html (no PNG files without matplotlib; pip install horovod[report])"
    )
    assert os.listdir(tmp_path / "horovod-report") == ["report.html"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["missing.json"], "No such file"),
        (["{file}"], "no timeline in"),
        (["{timeline}", "--report-check", "{file}"], "is not a file of horovodrun --check --check-output"),
    ],
)
def test_mistakes_are_said_without_a_traceback(words, said, timeline, tmp_path):
    (tmp_path / "file").write_text("[]")
    words = [word.format(file=tmp_path / "file", timeline=timeline) for word in words]
    done = horovodrun("--report", *words, cwd=tmp_path)
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr
