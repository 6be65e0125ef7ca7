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


@pytest.mark.parametrize("size", RUN)
@pytest.mark.parametrize("name", ["mxnet_mnist.py", "mxnet_module_mnist.py"])
def test_digits(name, size):
    done = subprocess.run(
        [*RUN[size], os.path.join(ROOT, "examples", name), "--epochs", "8"],
        env=worker_env(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    accuracies = [float(a) for a in re.findall(r"test accuracy ([\d.]+)", done.stdout)]
    assert len(accuracies) == 8 and accuracies[-1] > 0.8, done.stdout
