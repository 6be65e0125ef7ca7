# SPDX-License-Identifier: Apache-2.0
"""Two ranks that train and two that compute: real dispatchers and workers of TensorFlow."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import world
from tf_worlds import _QUIET, run

from horovod.rendezvous.auth import make_secret

pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def workers():
    """Where workers run, one test after the other."""
    there = world.World(2, env=_QUIET)
    yield there
    there.close()


def compute(*arguments):
    from horovod.tensorflow.data.compute_worker import main

    main(*arguments)
    return "ended"


def take(path, reuse, turns):
    """What one rank gets of 40 numbers, squared by the workers."""
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow.data.compute_service import TfDataServiceConfig, tf_data_service

    config = TfDataServiceConfig.read(path, wait_for_file_creation=True)
    dataset = tf.data.Dataset.range(40).map(lambda x: x * x)
    if turns:
        dataset = dataset.repeat()
    if config.dispatcher_side == "compute":
        sent = dataset.send_to_data_service(
            config, hvd.rank(), hvd.size(), reuse_dataset=reuse, round_robin=turns
        )
        got = [int(x) for x in (sent.take(10) if turns else sent)]
    else:
        with tf_data_service(config, hvd.rank()) as service:
            distribute = tf.data.experimental.service.distribute("distributed_epoch", service)
            got = [int(x) for x in dataset.apply(distribute)]
    hvd.barrier()
    if hvd.rank() == 0:
        config.compute_client().shutdown()
    return sorted(got)


@pytest.mark.parametrize(
    "dispatchers, side, reuse, turns",
    [
        (1, "compute", False, False),
        (1, "compute", True, False),
        (1, "compute", True, True),
        (2, "compute", False, False),
        (1, "training", False, False),
        (2, "training", False, False),
    ],
)
def test_what_ranks_get(workers, tmp_path, dispatchers, side, reuse, turns):
    path = str(tmp_path / "service.json")
    with ThreadPoolExecutor(1) as pool:
        service = pool.submit(workers.run, compute, dispatchers, side, path, 60, timeout=180)
        first, second = run("tensorflow", take, path, reuse, turns)
        assert service.result(180) == ["ended"] * 2
    squares = [x * x for x in range(40)]
    if turns:
        assert len(first) == len(second) == 10
    elif reuse:
        assert sorted(first + second) == squares
    else:
        assert first == second == squares


def test_uneven_workers(workers, tmp_path):
    said = r"Number of processes \(2\) must be a multiple of number of dispatchers \(%d\)\."
    for dispatchers in (3, 0):
        with pytest.raises(world.RanksFailed, match=said % dispatchers):
            workers.run(compute, dispatchers, "compute", str(tmp_path / "f"), 60)


def refused(key):
    import tensorflow as tf

    from horovod.tensorflow.data.compute_service import TfDataServiceConfig, send_to_data_service

    dataset = tf.data.Dataset.range(1)
    problems = []
    for side, options in (("training", {}), ("compute", {"reuse_dataset": True, "round_robin": True})):
        config = TfDataServiceConfig(1, 1, side, {"lo": [("127.0.0.1", 1)]}, key)
        try:
            send_to_data_service(dataset, config, 0, **options)
        except (RuntimeError, ValueError) as error:
            problems.append(str(error))
    return problems


def test_what_is_refused():
    expected = [
        "training side dispatcher not supported, use tf_data_service context manager instead",
        "round_robin needs size, the number of ranks that take turns, e.g. hvd.size()",
    ]
    assert run("tensorflow", refused, make_secret()) == [expected] * 2
