# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run and an estimator through Spark Connect."""

from __future__ import annotations

import pytest
from spark_scripts import lines


@pytest.fixture(scope="module")
def connect(tmp_path_factory):
    return lines("connect_script.py", tmp_path_factory.mktemp("connect"))


def test_results_and_output(connect):
    said, done = connect
    assert said["total"]["result"] == [[0, 2, [2.0, 2.0]], [1, 2, [2.0, 2.0]]]
    assert said["default"]["result"] == 2
    assert "[0]<stdout>:hello from 0" in done.stdout and "[1]<stdout>:hello from 1" in done.stdout


def test_an_exception_comes_back(connect):
    raised = connect[0]["raised"]
    assert raised["error"] == "no luck today" and "rank 1 on host" in raised["cause"]
    assert "in total" in raised["cause"]


def test_too_few_slots(connect):
    text = connect[0]["few"]["error"]
    assert (
        text.startswith("TimeoutException: Timed out waiting for Spark tasks") and "of 3 Spark tasks" in text
    )


def test_interrupted_from_the_keyboard(connect):
    assert connect[0]["cancelled"]["left"] is False, "ranks go on"


def test_elastic_jobs_are_refused(connect):
    assert "run_elastic needs a classic Spark session" in connect[0]["elastic"]["error"]


def test_an_estimator(connect):
    assert connect[0]["estimator"]["result"] == [2, 40]
