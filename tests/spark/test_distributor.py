# SPDX-License-Identifier: Apache-2.0
"""Distributor: functions and scripts, on this machine and in Spark tasks."""

from __future__ import annotations

import os

import pytest

from horovod.runner.job import JobFailed
from horovod.spark.distributor import Distributor

SCRIPT = """
import os, sys
import horovod.numpy as hvd
from beside import NAME
hvd.init()
with open(os.path.join(sys.argv[1], f"{NAME}-{hvd.rank()}-of-{hvd.size()}"), "w") as file:
    file.write(os.environ["CUDA_VISIBLE_DEVICES"])
sys.exit(int(sys.argv[2]) if hvd.rank() == 1 else 0)
"""


def train(rate, factor=1):
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    visible = os.environ["CUDA_VISIBLE_DEVICES"]
    return hvd.rank(), hvd.allreduce(np.array([rate * factor]), op=hvd.Sum).tolist(), visible


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("NAME = 'rank'\n")
    return str(tmp_path / "train.py")


@pytest.mark.parametrize("local_mode", [True, False])
def test_functions(spark, local_mode):
    made = Distributor(num_processes=2, local_mode=local_mode, use_gpu=False)
    assert made.run(train, 0.5, factor=4) == [(0, [4.0], "-1"), (1, [4.0], "-1")]


@pytest.mark.parametrize("local_mode", [True, False])
def test_scripts(spark, tmp_path, script, local_mode):
    made = Distributor(num_processes=2, local_mode=local_mode, use_gpu=True)
    assert made.run(script, tmp_path, 0) == []
    shown = {path.name: path.read_text() for path in tmp_path.glob("rank-*")}
    assert shown == {"rank-0-of-2": "0", "rank-1-of-2": "1"}
    with pytest.raises(JobFailed, match="Process name: 1\nExit code: 3"):
        made.run(script, tmp_path, 3)


def test_what_is_refused(script):
    with pytest.raises(ValueError, match="num_processes has to be a positive integer"):
        Distributor(num_processes=0)
    with pytest.raises(ValueError, match="a script takes no keyword arguments"):
        Distributor().run(script, rate=3)
