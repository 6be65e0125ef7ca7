# SPDX-License-Identifier: Apache-2.0
"""Broadcasting parameters, Python objects, and the life of the module."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from world import worker_env


def run_broadcast_parameters():
    import mxnet as mx

    import horovod.mxnet as hvd

    rank = hvd.rank()
    arrays = {f"a{i}": mx.nd.full((i + 1, 2), rank) for i in range(3)}
    hvd.broadcast_parameters(arrays, root_rank=1)
    parameter = mx.gluon.Parameter("p", shape=(3,))
    parameter.initialize(mx.init.Constant(rank))
    hvd.broadcast_parameters({"p": parameter}, root_rank=1, prefix="x.")
    late = mx.gluon.nn.Dense(4)
    late.initialize(mx.init.Constant(rank))
    hvd.broadcast_parameters(late.collect_params(), root_rank=1)
    late(mx.nd.ones((2, 5)))
    values = [*arrays.values(), parameter.data(), late.weight.data()]
    again = late.weight._init_impl.__name__ == "_init_impl"
    try:
        hvd.broadcast_parameters([1, 2])
        text = "no error"
    except ValueError as error:
        text = str(error)
    return [bool((v.asnumpy() == 1).all()) for v in values], again, text


def test_broadcast_parameters(world):
    for same, again, text in world.run(run_broadcast_parameters):
        assert all(same) and again and text.startswith("invalid params of type: <class 'list'>")


def run_objects():
    import horovod.mxnet as hvd

    mine = {"rank": hvd.rank(), "data": list(range(hvd.rank()))}
    return hvd.broadcast_object(mine, root_rank=hvd.size() - 1), hvd.allgather_object(mine)


def test_objects(world):
    everyone = [{"rank": r, "data": list(range(r))} for r in range(world.np)]
    assert world.run(run_objects) == [(everyone[-1], everyone)] * world.np


SCRIPT = """
import mxnet as mx
import horovod.mxnet as hvd

try:
    hvd.allreduce(mx.nd.ones(3))
except mx.base.MXNetError as error:
    print("before:", error)
for world in range(2):
    hvd.init()
    assert hvd.size() == 1 and hvd.rank() == 0 and hvd.is_initialized()
    print(hvd.allreduce(mx.nd.arange(3), op=hvd.Sum).asnumpy().tolist(), hvd.allgather(mx.nd.ones(2)).shape)
    hvd.shutdown()
    assert not hvd.is_initialized()
hvd.init()
pending = hvd.allreduce(mx.nd.dot(mx.nd.ones((400, 400)), mx.nd.ones((400, 400))))  # still running at the end
"""


@pytest.mark.parametrize("engine", ["ThreadedEnginePerDevice", "NaiveEngine"])
def test_one_process_and_starting_again(engine):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env=worker_env({"MXNET_ENGINE_TYPE": engine}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines == [
        "before: Horovod has not been initialized; use hvd.init().",
        "[0.0, 1.0, 2.0] (2,)",
        "[0.0, 1.0, 2.0] (2,)",
    ]


def test_public_names():
    import horovod.mxnet as hvd

    assert not [name for name in hvd.__all__ if not hasattr(hvd, name)]
    assert "allreduce_async" not in hvd.__all__


def test_compression():
    import mxnet as mx

    import horovod.mxnet as hvd

    x = mx.nd.array([1.0, 2.5], dtype="float32")
    small, ctx = hvd.Compression.fp16.compress(x)
    assert small.dtype == np.float16 and hvd.Compression.fp16.decompress(small, ctx).dtype == np.float32
    whole = mx.nd.array([1, 2], dtype="int32")
    assert hvd.Compression.fp16.compress(whole)[0] is whole
    assert hvd.Compression.none.compress(x)[0] is x
