# SPDX-License-Identifier: Apache-2.0
"""The hooks on parameters: how a gradient gets from backward to its reducer.

A parameter has the hook of one optimizer, the one wrapped around it last. Hooks hold their reducer and slot
weakly, so an optimizer that is dropped takes its hooks' effect with it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable, List, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from horovod.common.constants import Average
from horovod.torch._slots import INPUT, OUTPUT, Slot

if TYPE_CHECKING:
    from horovod.torch._reducer import GradientReducer

# The engine's thread is woken once so many bytes are ready. Waking it for every bias would cost backward more
# than it gains; what is left when backward ends is driven by the thread that waits for it. Measured with
# benchmarks/torch_ddp.py: of 1 byte to everything at the end, 4 MiB was best with and without cores to spare.
WAKE_BYTES = 4 << 20

current_task: Callable[[], int] = torch._C._current_graph_task_id


class _Owner(NamedTuple):
    """Who hooks a parameter."""

    handles: List[Any]
    reducer: weakref.ref[GradientReducer]
    slot: weakref.ref[Slot]


_owners: Any = WeakTensorKeyDictionary()


def install(reducer: GradientReducer, slot: Slot) -> None:
    """Hooks a slot's parameter, in place of any earlier optimizer's hook."""
    param: Any = slot.param
    previous = _owners.get(param)
    if previous is not None:
        for handle in previous.handles:
            handle.remove()
        before, old = previous.reducer(), previous.slot()
        if before is not None and old is not None:
            before.drop(old)
    me, its = weakref.ref(reducer), weakref.ref(slot)
    handles = [param.register_post_accumulate_grad_hook(_after_accumulation(me, its, param.dtype))]
    if reducer.rule.op != Average:
        handles.append(param.register_hook(_before_accumulation(its)))
    _owners[param] = _Owner(handles, me, its)


def _after_accumulation(
    me: weakref.ref[GradientReducer], its: weakref.ref[Slot], dtype: torch.dtype
) -> Callable[[torch.Tensor], None]:
    def hook(param: torch.Tensor) -> None:
        reducer, slot = me(), its()
        if reducer is None or slot is None:
            return
        # The usual case, written out flat: this runs once a parameter and step, inside backward.
        if slot.fast and reducer.fast and slot.grad is None:
            grad = param.grad
            if grad is not None and grad.dtype is dtype and grad.is_contiguous():
                bucket = slot.bucket
                bucket.pointers[INPUT] = bucket.pointers[OUTPUT] = grad.data_ptr()
                reducer.unannounced += bucket.nbytes
                if reducer.unannounced < WAKE_BYTES:
                    handle = reducer.submit(*bucket.quiet)
                else:
                    reducer.unannounced = 0
                    handle = reducer.submit(*bucket.arguments)
                if handle > 0:
                    bucket.handle = handle
                    slot.grad = grad
                    reducer.in_flight.append(bucket)
                    if reducer.task != current_task():
                        reducer.await_end_of_backward()
                    return
        reducer.ready(slot, param)

    # torch.compile must not look inside: it could not follow the call into the engine.
    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    return hook


def _before_accumulation(its: weakref.ref[Slot]) -> Callable[[torch.Tensor], None]:
    """Sets a reduced gradient aside, so that what is added to it can be reduced by itself."""

    def hook(grad: torch.Tensor) -> None:
        slot = its()
        if slot is not None and slot.reduced and slot.param.grad is not None:
            slot.base, slot.param.grad = slot.param.grad, None
            slot.reduced = False

    hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    return hook
