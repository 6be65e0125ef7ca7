# SPDX-License-Identifier: Apache-2.0
"""Calls that wait for a device: given up or overtaken by a shutdown, they are not submitted any more.

The device here is an event that the test sets, so that these run without one.
"""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any, List

import pytest
import torch
from tests_support import run_world, shared_world


class Device:
    """Stands in for a CUDA event: ready when told so."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.asked = threading.Event()

    def synchronize(self) -> None:
        self.asked.set()
        self.ready.wait()


def staged(device: Any, tensor: torch.Tensor, name: str, submitted: List[int]) -> Any:
    """An allreduce of a tensor that a device is still writing to."""
    from horovod.common import engine
    from horovod.common.constants import ALLREDUCE, FLOAT32, Sum
    from horovod.torch._staging import StagedHandle

    address = tensor.data_ptr()

    def submit() -> int:
        shape = tuple(tensor.shape)
        request = engine.request(ALLREDUCE, f"allreduce.{name}", FLOAT32, shape, address, address, op=Sum)
        submitted.append(engine.submit([request]))
        return submitted[-1]

    return StagedHandle([device], submit, lambda submission: tensor, tensor)


def given_up_before_the_device_is_ready() -> None:
    import horovod.torch as hvd

    device, submitted = Device(), []
    handle = staged(device, torch.ones(4), "never sent", submitted)
    device.asked.wait()
    handle.cancel()
    device.ready.set()
    handle._submitted.wait()
    assert submitted == []
    hvd.barrier()


def given_up_while_under_way() -> None:
    """The memory stays until the engine is done with it, though nobody else holds it."""
    import horovod.torch as hvd

    if hvd.rank() == 0:
        device, submitted = Device(), []
        device.ready.set()
        tensor = torch.ones(1 << 16)
        storage = weakref.ref(tensor)
        handle = staged(device, tensor, "sent and given up", submitted)
        handle._submitted.wait()
        assert len(submitted) == 1 and not handle.done()
        handle.cancel()
        del handle, tensor, submitted
        gc.collect()
        assert storage() is not None
        hvd.barrier()
    else:
        hvd.barrier()
        total = hvd.allreduce(torch.ones(1 << 16), name="sent and given up", op=hvd.Sum)
        assert total.eq(hvd.size()).all()
    hvd.barrier()
    sweep = hvd.allreduce_async(torch.ones(1), name="sweeps")
    if hvd.rank() == 0:
        gc.collect()
        assert storage() is None
    hvd.synchronize(sweep)


def overtaken_by_shutdown() -> None:
    import horovod.torch as hvd
    from horovod.common.exceptions import HorovodInternalError

    hvd.init()
    device, submitted = Device(), []
    handle = staged(device, torch.ones(4), "of another life", submitted)
    device.asked.wait()
    hvd.shutdown()
    hvd.init()
    device.ready.set()
    with pytest.raises(HorovodInternalError, match="shut down before a device"):
        handle.result()
    assert submitted == []
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name="of another life").tolist() == [hvd.size()] * 3


@pytest.mark.parametrize("case", [given_up_before_the_device_is_ready, given_up_while_under_way])
def test_given_up(case):
    shared_world(2).run(case)


def test_what_was_meant_for_one_engine_does_not_reach_the_next():
    run_world(overtaken_by_shutdown, 2)
