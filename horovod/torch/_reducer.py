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
import weakref
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from horovod.common import _native, engine, names
from horovod.common.basics import basics
from horovod.common.constants import OK, TIMEOUT, Average
from horovod.common.process_sets import ProcessSet, process_set_id
from horovod.torch import _sparse, _staging
from horovod.torch._slots import DIRTY, INPUT, OUTPUT, Bucket, Slot
from horovod.torch._tensor import CODES
from horovod.torch._verbs import place_in
from horovod.torch.compression import Compression, for_parameter

_current_task: Callable[[], int] = torch._C._current_graph_task_id
_current_node: Callable[[], Any] = torch._C._current_autograd_node

# The engine's thread is woken once so many bytes are ready. Waking it for every bias would cost backward more
# than it gains; what is left when backward ends is driven by the thread that waits for it.
WAKE_BYTES = 1 << 20

_generation = 0  # counts inits: process set numbers and sizes change with each
_reducers_of_set: Dict[int, int] = {}


def _on_init() -> None:
    global _generation
    _generation += 1


basics.at_init(_on_init)
basics.at_shutdown(_reducers_of_set.clear)


class Rule(NamedTuple):
    """How gradients are reduced."""

    op: int
    prescale: float
    postscale: float
    compression: Any
    sparse_as_dense: bool
    process_set: ProcessSet


class _Owner(NamedTuple):
    """Who hooks a parameter; weak, so that neither keeps the other alive."""

    handle: Any
    reducer: weakref.ref[GradientReducer]
    slot: weakref.ref[Slot]


# A parameter has one hook: the latest optimizer wrapped around it takes over from earlier ones.
_owners: Any = WeakTensorKeyDictionary()


class GradientReducer:
    """The slots of one optimizer's parameters, and what is under way for them."""

    def __init__(self, rule: Rule, passes_per_step: int) -> None:
        self.rule = rule
        self._passes_per_step = passes_per_step
        self._paused = False
        self.slots: List[Slot] = []
        self._buckets: List[Bucket] = []
        self._in_flight: Deque[Bucket] = collections.deque()
        self._gathering: Deque[Slot] = collections.deque()  # sparse reductions under way
        self._round = 1
        self._unannounced = 0  # bytes submitted since the engine was last woken
        self._task = -1  # graph task whose end is already being waited for
        self._generation = -1
        self._fast_generation = -1  # _generation while hooks may take the short way, else -1
        self._active = False
        self._prefix: Optional[str] = None
        self._submit = _untyped_submit()

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
        usual = self._active and not self._paused and self._passes_per_step == 1
        self._fast_generation = self._generation if usual else -1

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
        self._unbind()

    def _unbind(self) -> None:
        """Lets `bind` fill in what depends on the running engine."""
        self._generation = self._fast_generation = -1

    def _make_slot(self, name: str, param: torch.Tensor) -> Slot:
        plain = self.rule.compression is Compression.none
        slot = Slot(name, param, None if plain else for_parameter(self.rule.compression, name, param))
        previous = _owners.get(param)
        if previous is not None:
            previous.handle.remove()
            reducer, old = previous.reducer(), previous.slot()
            if reducer is not None and old is not None:
                reducer._drop(old)
        me, its = weakref.ref(self), weakref.ref(slot)
        dtype = param.dtype

        def hook(param: torch.Tensor) -> None:
            reducer, slot = me(), its()
            if reducer is None or slot is None:
                return
            # The usual case, written out flat: this runs once a parameter and step, inside backward.
            if slot.fast and reducer._fast_generation == _generation and slot.grad is None:
                grad = param.grad
                if grad is not None and grad.dtype is dtype and grad.is_contiguous():
                    bucket = slot.bucket
                    bucket.pointers[INPUT] = bucket.pointers[OUTPUT] = grad.data_ptr()
                    reducer._unannounced += bucket.nbytes
                    if reducer._unannounced < WAKE_BYTES:
                        handle = reducer._submit(*bucket.quiet)
                    else:
                        reducer._unannounced = 0
                        handle = reducer._submit(*bucket.arguments)
                    if handle > 0:
                        bucket.handle = handle
                        slot.grad = grad
                        reducer._in_flight.append(bucket)
                        if reducer._task != _current_task():
                            reducer._await_end_of_backward()
                        return
            reducer._ready(slot, param)

        # torch.compile must not look inside: it could not follow the call into the engine.
        hook._torchdynamo_disable = True  # type: ignore[attr-defined]
        handles = [_register_hook(param, hook)]
        if self.rule.op != Average:

            def set_aside(grad: torch.Tensor) -> None:
                slot = its()
                if slot is not None and slot.reduced and slot.param.grad is not None:
                    slot.base, slot.param.grad = slot.param.grad, None
                    slot.reduced = False

            set_aside._torchdynamo_disable = True  # type: ignore[attr-defined]
            handles.append(_register_pre_hook(param, set_aside))
        _owners[param] = _Owner(_Handles(handles), me, its)
        return slot

    def _drop(self, slot: Slot) -> None:
        """Another optimizer has taken the parameter over."""
        self.wait()
        self.slots.remove(slot)
        self._buckets.remove(slot.bucket)
        rest = [other for other in slot.bucket.slots if other is not slot]
        if rest:
            self._buckets.append(
                Bucket(rest, self._wire_names(rest), self.rule.op, self.rule.prescale, self.rule.postscale, 0)
            )
        self._unbind()

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
        set_id = process_set_id(self.rule.process_set)
        number = _reducers_of_set.get(set_id, 0)
        _reducers_of_set[set_id] = number + 1
        return number

    def bind(self) -> None:
        """Adapts to the running engine: whether to reduce at all, and under which numbers and names."""
        self._generation = _generation
        self._fast_generation = -1
        process_set = self.rule.process_set
        self._in_flight.clear()
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
        if self._generation != _generation:
            self.bind()
        return self._active

    # ------------------------------------------------------------------------------ backward --

    def _ready(self, slot: Slot, param: torch.Tensor) -> None:
        """The hook: a gradient has been accumulated."""
        if self._generation != _generation:
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
        if self._task != _current_task():
            self._await_end_of_backward()

    def _await_end_of_backward(self) -> None:
        self._task = _current_task()
        torch.autograd.Variable._execution_engine.queue_callback(self._backward_done)

    def _backward_done(self) -> None:
        self._task = -1
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
        self._in_flight.append(bucket)

    def _submit_now(self, bucket: Bucket) -> int:
        self._unannounced += bucket.nbytes
        if self._unannounced < WAKE_BYTES:
            handle = self._submit(*bucket.quiet)
        else:
            self._unannounced = 0
            handle = self._submit(*bucket.arguments)
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
        self._unannounced = 0
        try:
            while self._in_flight:  # an interrupted wait can be taken up again
                bucket = self._in_flight[0]
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
                self._in_flight.popleft()
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
        for bucket in self._in_flight:
            if bucket.handle:
                engine.hold(bucket.handle, [(slot.grad, slot.wire) for slot in bucket.slots])
                engine.release(bucket.handle)
        for bucket in self._buckets:
            bucket.reset()
        self._in_flight.clear()
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


def _untyped_submit() -> Callable[..., int]:
    """hvd_submit without declared argument types, for arguments that are C objects already."""
    function: Any = ctypes.CDLL(_native.library_path()).hvd_submit
    function.restype = ctypes.c_int64
    return function  # type: ignore[no-any-return]


def _register_hook(param: Any, hook: Callable[[torch.Tensor], None]) -> Any:
    return param.register_post_accumulate_grad_hook(hook)


def _register_pre_hook(param: Any, hook: Callable[[torch.Tensor], None]) -> Any:
    return param.register_hook(hook)


def _empty_sparse(param: torch.Tensor) -> torch.Tensor:
    indices = torch.empty((1, 0), dtype=torch.int64, device=param.device)
    values = param.new_empty((0, *param.shape[1:]))
    return torch.sparse_coo_tensor(indices, values, param.shape, check_invariants=False)


class _Handles:
    """Several hook handles as one."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
