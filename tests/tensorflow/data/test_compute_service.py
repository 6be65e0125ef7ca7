# SPDX-License-Identifier: Apache-2.0
"""Two ranks that train and two that compute: real dispatchers and workers of TensorFlow."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import world
from data_service import compute, service, workers
from tf_worlds import run

from horovod.rendezvous.auth import make_secret

pytest.importorskip("tensorflow")
TfDataServiceConfig = pytest.importorskip("horovod.tensorflow.data.config").TfDataServiceConfig


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
def test_what_ranks_get(tmp_path, dispatchers, side, reuse, turns):
    path = str(tmp_path / "service.json")
    with service(path, dispatchers, side):
        first, second = run("tensorflow", take, path, reuse, turns)
    squares = [x * x for x in range(40)]
    if turns:
        assert len(first) == len(second) == 10
    elif reuse:
        assert sorted(first + second) == squares
    else:
        assert first == second == squares


def ends(path):
    """When the servers of a process have stopped; the second process takes its time."""
    import time

    from tensorflow.data.experimental import service

    import horovod.tensorflow as hvd
    from horovod.tensorflow.data.compute_worker import main

    stopped, originals = {}, {kind: kind._stop for kind in (service.WorkerServer, service.DispatchServer)}

    def late(server):
        time.sleep(0.5 * hvd.rank())
        originals[type(server)](server)
        stopped.setdefault(type(server).__name__, time.time())  # once more when it is deleted

    for kind in originals:
        kind._stop = late
    try:
        main(1, "compute", path, 60)
    finally:
        for kind, original in originals.items():
            kind._stop = original
    return stopped


def test_a_dispatcher_stops_after_its_workers(tmp_path):
    """A worker that reads ahead asks it for more, and does not stop before it is answered."""
    path = str(tmp_path / "service.json")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(workers().run, ends, path)
        config = TfDataServiceConfig.read(path, wait_for_file_creation=True)
        config.compute_client().wait_for_dispatcher_worker_registration(0, 60)
        config.compute_client().shutdown()
        first, second = running.result()
    assert max(first["WorkerServer"], second["WorkerServer"]) <= first["DispatchServer"]
    assert list(second) == ["WorkerServer"]


def test_uneven_workers(tmp_path):
    said = r"Number of processes \(2\) must be a multiple of number of dispatchers \(%d\)\."
    for dispatchers in (3, 0):
        with pytest.raises(world.RanksFailed, match=said % dispatchers):
            workers().run(compute, dispatchers, "compute", str(tmp_path / "f"), 60)


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
