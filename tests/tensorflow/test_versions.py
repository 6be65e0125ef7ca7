# SPDX-License-Identifier: Apache-2.0
"""An older TensorFlow, in an environment of its own, with the same build of the kernels."""

from __future__ import annotations

import os
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PYTHON = os.path.join(ROOT, ".venv-tf-old", "bin", "python")


def test_older_tensorflow():
    if not os.path.exists(PYTHON):
        pytest.skip("no .venv-tf-old: `make .venv-tf-old/.ready` makes an environment with an older one")
    env = {**os.environ, "PYTHONPATH": ROOT, "TF_CPP_MIN_LOG_LEVEL": "3"}
    script = os.path.join(HERE, "old_version_check.py")
    done = subprocess.run([PYTHON, script], env=env, capture_output=True, text=True, timeout=600)
    assert done.stdout.strip().endswith("fine"), done.stdout[-1000:] + done.stderr[-3000:]
