# SPDX-License-Identifier: Apache-2.0
"""Reduces gradients while backward computes them.

A hook on each parameter fires when its gradient is complete and submits it at once, so communication overlaps
the rest of backward. When backward ends, everything it started is waited for: after `loss.backward()`
every gradient is the reduced one, and clipping, unscaling, logging and stepping need no further care.

What holds at the end of a backward that touched any parameter of the optimizer:

  * every parameter was reduced, those without a gradient as zeros, so ranks whose graphs differ still agree;
  * a second backward adds to the reduced gradients and reduces again, with the right sum: an average of
    averages is an average; for other reductions the reduced part is set aside and added back;
  * inside `no_sync`, and before the last of `backward_passes_per_step` passes, nothing was sent.

A nested backward (re-entrant checkpointing) waits for what it started; the missing parameters are left to the
outer one.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from horovod.common import copies
from horovod.common.basics import basics
from horovod.common.constants import Average
from horovod.common.members import place_in
from horovod.torch import _ranges, _sparse
from horovod.torch._buckets import Bucket
from horovod.torch._flight import Flight, current_task
from horovod.torch._hooks import install
from horovod.torch._naming import optimizer_prefix
from horovod.torch._rule import Rule
from horovod.torch._slots import DIRTY, Slot
from horovod.torch._tensor import CODES
from horovod.torch.compression import Compression, for_parameter

# Absent from the first torch releases with these hooks; without it every backward counts as an outermost one.
_current_node: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)

_reducers: weakref.WeakSet[GradientReducer] = weakref.WeakSet()


def _on_init() -> None:
    for reducer in _reducers:
        reducer.unbind()


basics.at_init(_on_init)


class GradientReducer:
    """The slots of one optimizer's parameters, and what is under way for them."""

    def __init__(self, rule: Rule, passes_per_step: int) -> None:
        self.rule = rule
        self._passes_per_step = passes_per_step
        self._paused = False
        self.slots: List[Slot] = []
        self._buckets: List[Bucket] = []
        self.flight = Flight(weakref.WeakMethod(self._backward_done))
        self._round = 1
        self._bound = False
        self._active = False
        self._on_device = False  # some parameters are
        self._prefix: Optional[str] = None
        _reducers.add(self)

    @property
    def passes_per_step(self) -> int:
        """How many backward passes accumulate before a reduction."""
        return self._passes_per_step

    @passes_per_step.setter
    def passes_per_step(self, passes: int) -> None:
        self._passes_per_step = passes
        self._choose_way()

    @property
    def paused(self) -> bool:
        """Whether gradients stay local, inside `no_sync`."""
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = paused
        self._choose_way()

    def _choose_way(self) -> None:
        usual = not self._paused and self._passes_per_step == 1
        self.flight.choose_way(self._bound and self._active and usual)

    # ---------------------------------------------------------------------------- parameters --

    def attach(self, groups: Sequence[Sequence[Tuple[str, torch.Tensor]]]) -> None:
        """Hooks parameters, given as (name, parameter) in the groups that are to be submitted together."""
        self.wait()
        for group in groups:
            slots = [self._make_slot(name, param) for name, param in group]
            self._buckets.append(Bucket(slots))
            self.slots.extend(slots)
        self.unbind()

    def _make_slot(self, name: str, param: torch.Tensor) -> Slot:
        plain = self.rule.compression is Compression.none
        compressor = None if plain else for_parameter(self.rule.compression, name, param)
        slot = Slot(name, param, self.flight, compressor, self.rule.sparse_as_dense)
        install(self, slot)
        return slot

    def drop(self, slot: Slot) -> None:
        """Another optimizer has taken the parameter over."""
        self.wait()
        self.slots.remove(slot)
        self._buckets.remove(slot.bucket)
        rest = [other for other in slot.bucket.slots if other is not slot]
        if rest:
            self._buckets.append(Bucket(rest))
        self.unbind()

    def slot_of(self, param: torch.Tensor) -> Slot:
        """The slot of a parameter. Raises KeyError if it is not one of this optimizer's."""
        for slot in self.slots:
            if slot.param is param:
                return slot
        raise KeyError("this parameter's gradient is not reduced by this optimizer")

    def unbind(self) -> None:
        """Lets `bind` fill in what depends on the running engine."""
        self._bound = False
        self._choose_way()

    def bind(self) -> None:
        """Adapts to the running engine: whether to reduce at all, and under which numbers and names."""
        self._bound = True
        self._active = False
        self._choose_way()
        self.flight.clear()
        process_set = self.rule.process_set
        if not basics.is_initialized() or not process_set.included():
            return
        call = self.rule.call()
        self._active = place_in(call.process_set)[0] > 1
        if self._prefix is None:
            self._prefix = optimizer_prefix(process_set)
        for bucket in self._buckets:
            bucket.bind(call, self._prefix)
        for number, slot in enumerate(self.slots):
            slot.fast = (
                len(slot.bucket.slots) == 1
                and self.rule.op == Average
                and slot.compressor is None
                and slot.strides is None
                and slot.dtype in CODES
                and (slot.param.is_cpu or slot.device >= 0)
            )
            self.flight.prepare(slot, number)
        self._on_device = any(slot.device >= 0 for slot in self.slots)
        self._choose_way()

    @property
    def active(self) -> bool:
        """Whether there is anybody to reduce with."""
        if not self._bound:
            self.bind()
        return self._active

    def name_for(self, name: str) -> str:
        """A name of this optimizer's own, for operations beside the gradients."""
        return f"{self._prefix or ''}{name}"

    # ------------------------------------------------------------------------------ backward --

    def ready(self, slot: Slot, param: torch.Tensor) -> None:
        """The hook: a gradient has been accumulated."""
        if not self._bound:
            self.bind()
        if not self._active:
            return
        self.absorb()
        slot.reduced = False
        slot.passes += 1
        if self._paused or slot.passes < self._passes_per_step:
            slot.round = DIRTY
            return
        if slot.grad is not None:
            raise AssertionError(
                f"The gradient of {slot.name} was computed again while its reduction was still under way "
                f"(pass {slot.passes} of backward_passes_per_step={self._passes_per_step}). An earlier "
                "backward was probably interrupted by an exception: call optimizer.zero_grad() or "
                "optimizer.synchronize() before the next one."
            )
        assert param.grad is not None
        self.launch(slot, param.grad)
        if self.flight.task != current_task():
            self.flight.await_end_of_backward()

    def _backward_done(self) -> None:
        if _current_node() is None:  # not nested in another backward
            self._fill()
        self.wait()

    def absorb(self) -> None:
        """Makes the slots show what is under way by C's hooks."""
        self.flight.absorb(self.slots, self._round)

    def launch(self, slot: Slot, grad: torch.Tensor) -> None:
        """Sends a gradient, or the group it completes."""
        slot.grad = grad
        bucket = slot.bucket
        if slot.is_direct(grad):
            slot.storage = grad.untyped_storage()
            bucket.point(slot, grad)
        elif grad.is_sparse and not slot.as_dense:
            self._gather(slot, grad)
            return
        else:
            slot.sparse = grad.is_sparse
            with torch.no_grad():
                wire, copied = copies.timed(slot.stage, grad, self.rule.op)
                bucket.carry(slot, wire)
            copies.before(bucket.names[slot.index], copied)
        bucket.missing -= 1
        if not bucket.missing:
            self.flight.send(bucket)

    def _gather(self, slot: Slot, grad: torch.Tensor) -> None:
        if len(slot.bucket.slots) > 1:
            raise ValueError(
                f"The gradient of {slot.name} is sparse and cannot be part of a group. Pass "
                "sparse_as_dense=True to DistributedOptimizer, or leave the parameter out of `groups`."
            )
        slot.sparse = True
        slot.finish = _sparse.reduce_gradient(self.rule.call(self.name_for(slot.name)), slot, grad)
        self.flight.gathers.append(slot)

    # --------------------------------------------------------------------------- completion --

    def synchronize(self) -> None:
        """Reduces whatever this step has not reduced yet, and waits for all of it."""
        if self.active:
            self._fill()
            self.wait()

    def _fill(self) -> None:
        """Submits what no hook has submitted: parameters that were not used, or not often enough."""
        if self.flight.send_quick() == len(self.slots):
            return
        self.absorb()
        for slot in self.slots:
            if slot.grad is None and slot.round != self._round:
                self._launch_missing(slot)

    def _launch_missing(self, slot: Slot) -> None:
        param = slot.param
        if not param.requires_grad:  # frozen since it was wrapped, on all ranks
            if len(slot.bucket.slots) == 1:
                slot.round = self._round
                return
            self.launch(slot, torch.zeros_like(param))
            return
        if param.grad is None:
            param.grad = _sparse.empty_like(param) if slot.sparse else torch.zeros_like(param)
        self.launch(slot, param.grad)

    def wait(self) -> None:
        """Waits for everything under way and puts the results into the gradients."""
        try:
            with _ranges.named("hvd.synchronize"):
                self._wait()
        except Exception:
            self.flight.abandon()
            for bucket in self._buckets:
                bucket.reset()
            raise

    def _wait(self) -> None:
        if self.flight.send_quick() == len(self.slots) and not self._on_device:  # the usual case
            self.flight.finish_quick()
            round_ = self._round
            for slot in self.slots:
                slot.reduce_done(round_)
        else:
            self.absorb()
        self.flight.wait(self._round)

    # ------------------------------------------------------------------------------- stepping --

    def step(
        self, inner: torch.optim.Optimizer, closure: Optional[Callable[[], Any]], *args: Any, **kw: Any
    ) -> Any:
        """Steps the wrapped optimizer."""
        if closure is None:
            return inner.step(*args, **kw)
        return inner.step(closure, *args, **kw)

    def step_locally(self) -> None:
        """Prepares for a step inside `no_sync`: gradients are what they are."""
        for slot in self.slots:
            if slot.base is not None:
                with torch.no_grad():
                    if slot.param.grad is not None:
                        slot.base.add_(slot.param.grad)
                slot.param.grad, slot.base = slot.base, None

    def forget_gradients(self) -> None:
        """Gradients are about to be cleared."""
        self.wait()
        for slot in self.slots:
            slot.base = None
            slot.reduced = False
            slot.passes = 0

    def end_round(self) -> None:
        """A step was made: gradients to come belong to the next."""
        self._round += 1
