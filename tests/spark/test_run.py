# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run on a local session."""

from __future__ import annotations

import io
import os

import pytest

import horovod.spark


def total(fail_on=-1):
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    print(f"rank {hvd.rank()} says hello")
    if hvd.rank() == fail_on:
        raise ValueError("no luck today")
    return hvd.rank(), hvd.local_size(), hvd.allreduce(np.full(4, hvd.rank() + 1.0), op=hvd.Sum).tolist()


def test_results_in_rank_order(spark):
    out = io.StringIO()
    assert horovod.spark.run(total, num_proc=2, stdout=out) == [(0, 2, [3.0] * 4), (1, 2, [3.0] * 4)]
    assert "[0]<stdout>:rank 0 says hello\n" in out.getvalue() and "[1]<stdout>:rank 1" in out.getvalue()
