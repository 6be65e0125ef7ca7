# SPDX-License-Identifier: Apache-2.0
"""Runs the snippets of docs/spark.md, in order; the reference says what the docstrings say."""

from __future__ import annotations

import os
import subprocess
import sys

from world import ROOT, worker_env


def test_snippets(pages):
    folder, text_of = pages
    assert "[1]<stdout>:rank 1 of 2" in text_of("docs")
    assert (folder / "store" / "intermediate_train_data.0").is_dir()


def test_the_reference_is_current():
    script = os.path.join(ROOT, "scripts", "generate_api.py")
    command = [sys.executable, script, "--check", "data", "spark"]
    done = subprocess.run(command, env=worker_env(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "left as it is" not in done.stdout, done.stdout + done.stderr
