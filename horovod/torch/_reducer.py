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

import collections
import ctypes
import functools
import weakref
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from horovod.common import _native, engine, names
from horovod.common.basics import basics
from horovod.common.constants import OK, TIMEOUT, Average
from horovod.common.process_sets import ProcessSet, process_set_id
from horovod.torch import _sparse, _staging
from horovod.torch._hooks import WAKE_BYTES, current_task, install
from horovod.torch._slots import DIRTY, Bucket, Slot
from horovod.torch._tensor import CODES
from horovod.torch._verbs import place_in
from horovod.torch.compression import Compression, for_parameter

# Absent from the first torch releases with these hooks; without it every backward counts as an outermost one.
_current_node: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)

_reducers: weakref.WeakSet[GradientReducer] = weakref.WeakSet()
_numbers: Dict[Tuple[int, ...], int] = {}  # how many optimizers there are, by the ranks of their process set


def _on_init() -> None:
    for reducer in _reducers:
        reducer.unbind()


basics.at_init(_on_init)
basics.at_shutdown(_numbers.clear)


class Rule(NamedTuple):
    """How gradients are reduced."""

    op: int
    prescale: float
    postscale: float
    compression: Any
    sparse_as_dense: bool
    process_set: ProcessSet


class GradientReducer:
    """The slots of one optimizer's parameters, and what is under way for them."""

    def __init__(self, rule: Rule, passes_per_step: int) -> None:
        self.rule = rule
        self._passes_per_step = passes_per_step
        self._paused = False
        self.slots: List[Slot] = []
        self._buckets: List[Bucket] = []
        self.in_flight: Deque[Bucket] = collections.deque()
        self._gathering: Deque[Slot] = collections.deque()  # sparse reductions under way
        self._round = 1
        self.unannounced = 0  # bytes submitted since the engine was last woken
        self.task = -1  # graph task whose end is already being waited for
        self._bound = False
        self.fast = False  # hooks may take the short way
        self._active = False
        self._prefix: Optional[str] = None
        self.submit = _untyped_submit()
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
        self.fast = self._bound and self._active and usual

    # ---------------------------------------------------------------------------- parameters --

    def attach(self, groups: Sequence[Sequence[Tuple[str, torch.Tensor]]]) -> None:
        """Hooks parameters, given as (name, parameter) in the groups that are to be submitted together."""
        self.wait()
        for group in groups:
            slots = [self._make_slot(name, param) for name, param in group]
            bucket = Bucket(slots, self._wire_names(slots), self.rule.op, self.rule.prescale,
                            self.rule.postscale, 0)  # fmt: skip
            self._buckets.append(bucket)
            self.slots.extend(slots)
        self.unbind()

    def unbind(self) -> None:
        """Lets `bind` fill in what depends on the running engine."""
        self._bound = self.fast = False

    def _make_slot(self, name: str, param: torch.Tensor) -> Slot:
        plain = self.rule.compression is Compression.none
        slot = Slot(name, param, None if plain else for_parameter(self.rule.compression, name, param))
        install(self, slot)
        return slot

    def drop(self, slot: Slot) -> None:
        """Another optimizer has taken the parameter over."""
        self.wait()
        self.slots.remove(slot)
        self._buckets.remove(slot.bucket)
        rest = [other for other in slot.bucket.slots if other is not slot]
        if rest:
            self._buckets.append(
                Bucket(rest, self._wire_names(rest), self.rule.op, self.rule.prescale, self.rule.postscale, 0)
            )
        self.unbind()

    def wire_name(self, name: str) -> str:
        """A name of this optimizer's own, for operations beside the gradients."""
        return f"{self._prefix or ''}{name}"

    def _wire_names(self, slots: Sequence[Slot]) -> List[str]:
        """Names like allreduce.layer1.weight; those of further optimizers are told apart by a number."""
        if len(slots) == 1:
            return [f"allreduce.{slots[0].name}"]
        return names.member_names(f"grouped_allreduce.{slots[0].name}", len(slots))

    def number(self) -> int:
        """This optimizer's number among those of its process set, from 0, in order of first use."""
        members = tuple(self.rule.process_set.ranks or ())
        _numbers[members] = _numbers.get(members, -1) + 1
        return _numbers[members]

    def bind(self) -> None:
        """Adapts to the running engine: whether to reduce at all, and under which numbers and names."""
        self._bound = True
        self.fast = False
        process_set = self.rule.process_set
        self.in_flight.clear()
        self._gathering.clear()
        self._active = False
        if not basics.is_initialized() or not process_set.included():
            return
        set_id = process_set_id(process_set)
        self._active = place_in(set_id)[0] > 1
        if self._prefix is None:
            number = self.number()
            self._prefix = f"opt{number}." if number else ""
        for bucket in self._buckets:
            bucket.reset()
            for slot, name in zip(bucket.slots, self._wire_names(bucket.slots)):
                kind, rest = name.split(".", 1)
                slot.c_name = ctypes.create_string_buffer(f"{kind}.{self._prefix}{rest}".encode())
                slot.request.name = ctypes.addressof(slot.c_name)
                slot.request.process_set = set_id
                slot.fast = (
                    bucket.count == 1
                    and self.rule.op == Average
                    and slot.compressor is None
                    and slot.strides is None
                    and slot.dtype in CODES
                    and slot.param.is_cpu
                )
        self._choose_way()

    @property
    def active(self) -> bool:
        """Whether there is anybody to reduce with."""
        if not self._bound:
            self.bind()
        return self._active

    # ------------------------------------------------------------------------------ backward --

    def ready(self, slot: Slot, param: torch.Tensor) -> None:
        """The hook: a gradient has been accumulated."""
        if not self._bound:
            self.bind()
        if not self._active:
            return
        slot.reduced = False
        slot.passes += 1
        if self._paused or slot.passes < self._passes_per_step:
            slot.round = DIRTY
            return
        grad = param.grad
        assert grad is not None
        if slot.grad is not None:
            raise AssertionError(
                f"The gradient of {slot.name} was computed again while its reduction was still under way "
                f"(pass {slot.passes} of backward_passes_per_step={self._passes_per_step}). An earlier "
                "backward was probably interrupted by an exception: call optimizer.zero_grad() or "
                "optimizer.synchronize() before the next one."
            )
        self._launch(slot, grad)
        if self.task != current_task():
            self.await_end_of_backward()

    def await_end_of_backward(self) -> None:
        """Called by the first hook of a backward."""
        self.task = current_task()
        torch.autograd.Variable._execution_engine.queue_callback(self._backward_done)

    def _backward_done(self) -> None:
        self.task = -1
        if _current_node() is None:  # not nested in another backward
            self._fill()
        self.wait()

    def _launch(self, slot: Slot, grad: torch.Tensor) -> None:
        slot.grad = grad
        if slot.is_direct(grad):
            request = slot.request
            request.input = request.output = grad.data_ptr()
        elif grad.is_sparse and not self.rule.sparse_as_dense:
            self._gather(slot, grad)
            return
        else:
            slot.sparse = grad.is_sparse
            with torch.no_grad():
                slot.stage(grad, self.rule.op)
        bucket = slot.bucket
        bucket.missing -= 1
        if not bucket.missing:
            self._send(bucket)

    def _gather(self, slot: Slot, grad: torch.Tensor) -> None:
        if slot.bucket.count > 1:
            raise ValueError(
                f"The gradient of {slot.name} is sparse and cannot be part of a group. Pass "
                "sparse_as_dense=True to DistributedOptimizer, or leave the parameter out of `groups`."
            )
        slot.sparse = True
        name = f"{self._prefix}{slot.name}"
        slot.finish = _sparse.allreduce_async(grad, name, self.rule.op, self.rule.process_set)
        self._gathering.append(slot)

    def _send(self, bucket: Bucket) -> None:
        events = bucket.events()
        if events:
            bucket.ticket = _staging.submit_after(events, lambda: self._submit_now(bucket))
        else:
            bucket.handle = self._submit_now(bucket)
        self.in_flight.append(bucket)

    def _submit_now(self, bucket: Bucket) -> int:
        self.unannounced += bucket.nbytes
        if self.unannounced < WAKE_BYTES:
            handle = self.submit(*bucket.quiet)
        else:
            self.unannounced = 0
            handle = self.submit(*bucket.arguments)
        if handle < 0:
            text = _native.last_error()
            if bucket.ticket is None:
                bucket.reset()
            engine.raise_for(handle, text)
        return handle

    # --------------------------------------------------------------------------- completion --

    def synchronize(self) -> None:
        """Reduces whatever this step has not reduced yet, and waits for all of it."""
        if self.active:
            self._fill()
            self.wait()

    def _fill(self) -> None:
        """Submits what no hook has submitted: parameters that were not used, or not often enough."""
        for slot in self.slots:
            if slot.grad is None and slot.round != self._round:
                self._launch_missing(slot)

    def _launch_missing(self, slot: Slot) -> None:
        param = slot.param
        if not param.requires_grad:  # frozen since it was wrapped, on all ranks
            if slot.bucket.count == 1:
                slot.round = self._round
                return
            self._launch(slot, torch.zeros_like(param))
            return
        if param.grad is None:
            if slot.sparse and not self.rule.sparse_as_dense:
                param.grad = _empty_sparse(param)
            else:
                param.grad = torch.zeros_like(param)
        self._launch(slot, param.grad)

    def wait(self) -> None:
        """Waits for everything under way and puts the results into the gradients."""
        self.unannounced = 0
        try:
            while self.in_flight:  # an interrupted wait can be taken up again
                bucket = self.in_flight[0]
                self._await(bucket)
                slot = bucket.slots[0]
                if slot.fast and slot.wire is None:  # the reduction is in the gradient's memory already
                    slot.grad = None
                    slot.passes = 0
                    slot.round = self._round
                    bucket.missing = 1
                else:
                    for slot in bucket.slots:
                        self._complete(slot)
                    bucket.reset()
                self.in_flight.popleft()
            while self._gathering:
                slot = self._gathering[0]
                assert slot.finish is not None
                slot.param.grad = slot.grad = slot.finish()
                self._complete(slot)
                slot.clear()
                self._gathering.popleft()
        except Exception:
            self.abandon()
            raise

    def _await(self, bucket: Bucket) -> None:
        handle = bucket.handle if bucket.ticket is None else bucket.ticket.handle()
        library = _native.lib()
        status = library.hvd_wait(handle, engine.WAIT_SLICE_S)
        while status == TIMEOUT:  # returns to Python now and then, for Ctrl-C
            status = library.hvd_wait(handle, engine.WAIT_SLICE_S)
        if status != OK:
            engine.raise_for(status, _native.last_error())
        library.hvd_release(handle)

    def _complete(self, slot: Slot) -> None:
        slot.passes = 0
        slot.round = self._round
        slot.reduced = True
        grad = slot.grad
        assert grad is not None
        if slot.wire is not None:
            with torch.no_grad():
                result = slot.unstage()
                if grad.is_sparse:
                    slot.param.grad = grad = result.to_sparse(grad.sparse_dim())
                else:
                    grad.copy_(result.view_as(grad) if result.shape != grad.shape else result)
        if slot.base is not None:
            with torch.no_grad():
                grad.add_(slot.base)
            slot.base = None

    def abandon(self) -> None:
        """Forgets what is under way, after a failure. Memory the engine may still write to is kept for it."""
        for bucket in self.in_flight:
            if bucket.handle:
                engine.hold(bucket.handle, [(slot.grad, slot.wire) for slot in bucket.slots])
                engine.release(bucket.handle)
        for bucket in self._buckets:
            bucket.reset()
        self.in_flight.clear()
        self._gathering.clear()

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


@functools.cache
def _untyped_submit() -> Callable[..., int]:
    """hvd_submit without declared argument types, for arguments that are C objects already."""
    function: Any = ctypes.CDLL(_native.library_path()).hvd_submit
    function.restype = ctypes.c_int64
    return function  # type: ignore[no-any-return]


def _empty_sparse(param: torch.Tensor) -> torch.Tensor:
    indices = torch.empty((1, 0), dtype=torch.int64, device=param.device)
    values = param.new_empty((0, *param.shape[1:]))
    return torch.sparse_coo_tensor(indices, values, param.shape, check_invariants=False)
