# SPDX-License-Identifier: Apache-2.0
"""The hooks on parameters: how a gradient gets from backward to its reducer.

A parameter has the hook of one optimizer, the one wrapped around it last. Hooks hold their reducer and slot
weakly, so an optimizer that is dropped takes its hooks' effect with it.

With torch 2.10 and later the hook of the usual case is C (csrc/glue/python/gradients.cc), and calls the one
below for the rest.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Callable, List, NamedTuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from horovod.common import _calls
from horovod.common.constants import Average
from horovod.common.requests import Standing
from horovod.torch._cuda import current_stream, device_number
from horovod.torch._flight import GPU_WAKE_BYTES, WAKE_BYTES, current_task
from horovod.torch._slots import Slot

if TYPE_CHECKING:
    from horovod.torch._reducer import GradientReducer

_INPUT, _OUTPUT, _STREAM = Standing.INPUT, Standing.OUTPUT, Standing.STREAM


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
    hook: Any = _after_accumulation(me, its, param.dtype)
    if slot.flight.quick is not None:
        slot.quick, hook = _calls.new_gradient(slot.flight.quick, hook)
    handles = [param.register_post_accumulate_grad_hook(hook)]
    if reducer.rule.op != Average:
        handles.append(param.register_hook(_before_accumulation(its)))
    _owners[param] = _Owner(handles, me, its)


def _after_accumulation(
    me: weakref.ref[GradientReducer], its: weakref.ref[Slot], dtype: torch.dtype
) -> Callable[[torch.Tensor], None]:
    submit = _calls.start_standing

    def hook(param: torch.Tensor) -> None:
        slot = its()
        if slot is None:
            return
        # The usual case, written out flat, where no hook in C has seen to it.
        flight = slot.flight
        if slot.quick is None and slot.fast and flight.fast and slot.grad is None:
            grad = param.grad
            device = slot.device
            if (
                grad is not None
                and grad.dtype is dtype
                and grad.is_contiguous()
                and device_number(grad) == device
            ):
                bucket = slot.bucket
                words = bucket.words
                words[_INPUT] = words[_OUTPUT] = grad.data_ptr()
                enough = WAKE_BYTES
                if device >= 0:
                    words[_STREAM] = current_stream(device)
                    enough = GPU_WAKE_BYTES
                unannounced = flight.unannounced + bucket.nbytes
                if unannounced < enough:
                    bucket.handle = submit(*bucket.quiet)
                else:
                    unannounced = 0
                    bucket.handle = submit(*bucket.loud)
                flight.unannounced = unannounced
                slot.grad = grad
                slot.storage = grad.untyped_storage()
                flight.buckets.append(bucket)
                if flight.task != current_task():
                    flight.await_end_of_backward()
                return
        reducer = me()
        if reducer is not None:
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
