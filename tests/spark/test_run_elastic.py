# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run_elastic on a local session: losses, newcomers, errors, limits, nothing left behind."""

from __future__ import annotations

import os
import signal

import pytest
from elastic_training import train
from spark_output import Heard, gone

import horovod.spark
from horovod.runner.common.util.timeout import TimeoutException


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def complain():
    raise ValueError("no luck today")


def run(*args, **options):
    out = Heard()
    result = horovod.spark.run_elastic(train, args, stdout=out, stderr=Heard(), **options)
    assert gone(out.numbers("pid"))
    return result


def test_fewer_slots_than_ranks_at_most(spark):
    """Spark has room for two of the three tasks; the third is given up at the end."""
    assert run(num_proc=2, max_num_proc=3) == [(rank, [2], 8) for rank in range(2)]
    assert run(num_proc=1) == [(0, [1], 8)]


def test_a_rank_that_dies_is_replaced(spark):
    """Rank 1 kills itself once; the survivor goes on, and ends together with a new one."""
    results = run(2, die, num_proc=2, min_num_proc=1)
    assert [rank for rank, _, _ in results] == [0, 1]
    sizes = results[0][1]
    assert results[1][1] == sizes and sizes[0] == 2 and sizes[-1] == 2, sizes
    assert {batches for _, _, batches in results} == {results[0][2]} and results[0][2] >= 8


def test_an_exception_comes_back(spark):
    with pytest.raises(ValueError, match="no luck today") as caught:
        run(2, complain, True, num_proc=2, min_num_proc=1)
    assert "(Spark task" in str(caught.value.__cause__) and "in complain" in str(caught.value.__cause__)
    assert run(num_proc=2) == [(rank, [2], 8) for rank in range(2)], "the next job works"


def test_too_few_slots(spark):
    with pytest.raises(TimeoutException, match="[012] of 3 Spark tasks have started: .* after 2 seconds"):
        run(num_proc=3, start_timeout=2)


def test_mistakes_with_pythons(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python")
    with pytest.raises(RuntimeError, match="cannot start their Python. Set PYSPARK_PYTHON"):
        run(num_proc=1, start_timeout=240)


def test_what_is_refused(spark):
    for wrong in ({"min_num_proc": 3}, {"max_num_proc": 1}, {"min_num_proc": 0}):
        with pytest.raises(ValueError, match="no fewer than min_num_proc and no more than max_num_proc"):
            run(num_proc=2, **wrong)
    with pytest.warns(DeprecationWarning, match="min_np is deprecated, use min_num_proc instead"):
        with pytest.raises(ValueError, match="min_num_proc=3"):
            run(num_proc=2, min_np=3)
