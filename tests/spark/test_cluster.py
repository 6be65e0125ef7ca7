# SPDX-License-Identifier: Apache-2.0
"""horovod.spark.run on a cluster of executors: allocated on demand, with GPUs, and killed."""

from __future__ import annotations

import pytest
from spark_scripts import lines


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    return lines("cluster_script.py", tmp_path_factory.mktemp("cluster"))[0]


def test_executors_are_allocated_for_the_ranks(cluster):
    ranks = cluster["place"]["result"]
    assert [(rank, local_size) for rank, local_size, _, _ in ranks] == [(0, 2), (1, 2)]


def test_ranks_get_the_gpus_of_their_tasks(cluster):
    devices = [devices for _, _, devices, _ in cluster["place"]["result"]]
    assert devices == [["3"], ["3"]]  # each executor has one of its own


def test_a_killed_executor_is_an_error_that_names_it(cluster):
    text = cluster["lost"]["error"]
    assert "Lost host" in text and "(Spark task" in text and "(rank 1)" in text


def test_survivors_of_a_killed_executor_go_on_in_an_elastic_job(cluster):
    """Spark starts the lost task again, on a new executor, and its rank joins."""
    results = cluster["elastic"]["result"]
    assert [rank for rank, _, _ in results] == [0, 1]
    assert all(sizes == [2, 1, 2] and batches >= 8 for _, sizes, batches in results), results


def test_the_next_job_works(cluster):
    assert len(cluster["again"]["result"]) == 2
