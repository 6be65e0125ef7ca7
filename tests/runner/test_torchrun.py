# SPDX-License-Identifier: Apache-2.0
"""Under a real torchrun."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from launching import REPORT, environment, reports

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


def test_torchrun():
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        REPORT,
        "--rounds",
        "2",
    ]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [(r["round"], r["rank"], r["size"], r["local_rank"]) for r in reports(done.stdout)] == [
        (0, 0, 2, 0), (0, 1, 2, 1), (1, 0, 2, 0), (1, 1, 2, 1),
    ]  # fmt: skip
    assert {r["launcher"] for r in reports(done.stdout)} == {"torchrun"}
