# SPDX-License-Identifier: Apache-2.0
"""The operations without tensors: waiting for the other ranks."""

from __future__ import annotations

from horovod.common import _calls, engine, names
from horovod.common.constants import BARRIER, JOIN, UINT8
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all members of the process set have called it."""
    number = process_set_id(process_set)
    if _calls.run_memory(None, UINT8, (), 0, 0, BARRIER, "barrier", "noname", number) is NotImplemented:
        engine.run_released(engine.request(BARRIER, "barrier.noname", UINT8, (), 0, process_set=number))


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and waits until all ranks say so.

    Until then the other ranks' allreduces go on; this rank counts as zeros in them.

    Args:
        device: the CUDA device for this rank's zeros in the others' reductions of GPU tensors; -1 is the
            one it used before.

    Returns:
        The rank that joined last.
    """
    handle = engine.run([engine.request(JOIN, "join.noname", UINT8, (), 0, device=max(device, -1))])
    try:
        last = int(engine.output(handle).value)
    finally:
        engine.release(handle)
    names.reset()  # ranks with more data have called more operations without a name
    return last
