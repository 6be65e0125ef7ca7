# SPDX-License-Identifier: Apache-2.0
"""The front ends' own copies in the timeline: each is a span of its tensor."""

from __future__ import annotations

import os

import pytest
from tests_support import run_world

from horovod.common import timelines


def numpy_calls():
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    strided = np.ones((1000, 1000), np.float32)[:, ::2]
    hvd.allreduce(strided, name="in")
    hvd.allreduce_(strided, name="both")
    hvd.synchronize(hvd.allreduce_async_(strided, name="later"))
    hvd.grouped_allreduce_([strided, strided], name="group")
    hvd.allreduce_(np.ones((1000, 1000), np.float32), name="none")
    hvd.stop_timeline()


def torch_calls():
    import torch

    import horovod.torch as hvd

    hvd.init()
    strided = torch.ones(1000, 1000)[:, ::2]
    hvd.allgather(strided, name="in")
    hvd.allreduce_(strided, name="both")
    hvd.allreduce(torch.ones(2, 3, 32, 32).to(memory_format=torch.channels_last), name="kept order")
    hvd.synchronize(hvd.allreduce_async_(strided, name="later"))
    hvd.allreduce_(torch.ones(1000, 1000), name="none")
    model = torch.nn.Linear(300, 300, bias=False)
    wrapped = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1), model.named_parameters(), compression=hvd.Compression.fp16
    )
    model(torch.ones(1, 300)).sum().backward()
    wrapped.step()
    hvd.stop_timeline()


def jax_calls():
    import jax.numpy as jnp

    import horovod.jax as hvd

    hvd.init()
    hvd.allreduce(jnp.ones((1000, 1000)), name="none")  # host memory, read and adopted where it lies
    hvd.stop_timeline()


IN, OUT = "COPY_IN", "COPY_OUT"
CALLS = [
    (numpy_calls, {
        "allreduce.in": [IN], "allreduce.both": [IN, OUT], "allreduce.later": [IN, OUT],
        "grouped_allreduce.group_1of2": [IN, OUT], "grouped_allreduce.group_2of2": [IN, OUT],
        "allreduce.none": [],
    }),
    (torch_calls, {
        "allgather.in": [IN], "allreduce.both": [IN, OUT], "allreduce.kept order": [IN, OUT],
        "allreduce.later": [IN, OUT], "allreduce.none": [], "allreduce.weight": [IN, OUT],
    }),
    (jax_calls, {"allreduce.none": []}),
]  # fmt: skip


def rows_of(events):
    """The spans of each tensor: {"allreduce.x": [("COPY_IN", 10, 25), ("ALLREDUCE", 31, 80)]}."""
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name" and e["pid"]}
    rows, began = {name: [] for name in names.values()}, {}
    for event in events:
        row = rows.get(names.get(event.get("pid")), [])
        if event["ph"] == "B":
            began[event["pid"]] = event
        elif event["ph"] == "E":
            row.append((began[event["pid"]]["name"], began[event["pid"]]["ts"], event["ts"]))
        elif event["ph"] == "X":
            row.append((event["name"], event["ts"], event["ts"] + event["dur"]))
    return rows


@pytest.mark.parametrize("calls, expected", CALLS)
def test_a_copy_is_a_span_of_its_tensor(tmp_path, calls, expected):
    path = str(tmp_path / "trace.json")
    run_world(calls, 2, env={"HOROVOD_TIMELINE": path})
    for own in (path, os.path.join(tmp_path, "trace.rank1.json")):
        rows = rows_of(timelines.read(own))
        for name, copies in expected.items():
            spans = [span for span in rows[name] if span[0] in (IN, OUT, "ALLREDUCE", "ALLGATHER")]
            kinds = [kind if kind in (IN, OUT) else "MOVED" for kind, _, _ in spans]
            assert kinds == [IN] * (IN in copies) + ["MOVED"] + [OUT] * (OUT in copies), name
            times = [time for _, began, ended in spans for time in (began, ended)]
            assert times == sorted(times), (name, spans)


def untold():
    import numpy as np

    import horovod.numpy as hvd
    from horovod.common import copies

    hvd.init()
    made, span = copies.timed(np.ones, 3)
    copies.before("allreduce.x", span)
    return made.tolist(), span


def test_without_a_timeline_nothing_is_told():
    assert run_world(untold, 1) == [([1.0, 1.0, 1.0], None)]
