# SPDX-License-Identifier: Apache-2.0
"""Runs the snippets of docs/spark.md, in order; the reference says what the docstrings say."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from world import ROOT, worker_env


def test_snippets(tmp_path):
    with open(os.path.join(ROOT, "docs", "spark.md"), encoding="utf-8") as document:
        snippets = re.findall(r"^```python\n(.*?)^```", document.read(), re.M | re.S)
    assert len(snippets) > 5
    (tmp_path / "snippets.py").write_text("\n".join(snippets))
    done = subprocess.run(
        [sys.executable, "snippets.py"],
        cwd=tmp_path, env=worker_env(), capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "[1]<stdout>:rank 1 of 2" in done.stdout
    assert (tmp_path / "store" / "intermediate_train_data.0").is_dir()


def test_the_reference_is_current():
    script = os.path.join(ROOT, "scripts", "generate_api.py")
    command = [sys.executable, script, "--check", "data", "spark"]
    done = subprocess.run(command, env=worker_env(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "left as it is" not in done.stdout, done.stdout + done.stderr
