# SPDX-License-Identifier: Apache-2.0
"""What MXNet's front end adds to the timeline: its copies, and steps that nobody marks."""

from __future__ import annotations

from world import World

from horovod.common import timelines


def gathers_and_exchanges():
    import mxnet as mx

    import horovod.mxnet as hvd

    hvd.allgather(mx.nd.ones((1000, 10)), name="gathered")
    hvd.alltoall(mx.nd.ones((1000, 10)), name="exchanged")
    hvd.allreduce(mx.nd.ones((1000, 10)), name="reduced").wait_to_read()
    hvd.stop_timeline()


def test_results_that_are_copied_into_arrays_of_mxnet_have_spans(tmp_path):
    path = str(tmp_path / "trace.json")
    world = World(2, env={"HOROVOD_TIMELINE": path})
    world.run(gathers_and_exchanges)
    world.close()
    for own in (path, str(tmp_path / "trace.rank1.json")):
        events = timelines.read(own)
        rows = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name" and e["pid"]}
        copied = [rows[e["pid"]] for e in events if e.get("name") == "COPY_OUT"]
        assert copied == ["allgather.gathered", "alltoall.exchanged"]


def trains():
    import mxnet as mx

    import horovod.mxnet as hvd

    layer = mx.gluon.nn.Dense(4)
    layer.initialize()
    trainer = hvd.DistributedTrainer(layer.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(6):
        with mx.autograd.record():
            loss = layer(mx.nd.ones((2, 50))).sum()
        loss.backward()
        trainer.step(2)
    mx.nd.waitall()
    return hvd.metrics()["steps"]


def test_steps_of_a_trainer_show_in_its_gradients():
    world = World(2)
    for steps in world.run(trains):
        assert 5 <= steps <= 7
    world.close()
