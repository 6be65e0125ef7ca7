# SPDX-License-Identifier: Apache-2.0
"""What is under way for one optimizer: sent and not yet waited for.

Most gradients never show up here: their hooks are C (csrc/glue/python/gradients.cc), which keeps a list of
its own, `quick`. It is waited for as a whole, or brought over here when something unusual has to be done.
"""

from __future__ import annotations

import collections
import weakref
from typing import Any, Callable, Deque, List, Optional

import torch

from horovod.common import _calls, engine
from horovod.torch._buckets import Bucket
from horovod.torch._cuda import current_stream
from horovod.torch._slots import Slot

# The engine's thread is woken once so many bytes are ready. Waking it for every bias would cost backward more
# than it gains; what is left when backward ends is driven by the thread that waits for it. Measured with
# benchmarks/torch_ddp.py: of 1 byte to everything at the end, 4 MiB was best with and without cores to spare.
WAKE_BYTES = 4 << 20
# A GPU reduces so many bytes while the host is woken: fewer, larger batches take less out of backward. Waking
# notes a moment of the stream besides, in which the thread may have to wait for the driver.
GPU_WAKE_BYTES = 25 << 20


current_task: Callable[[], int] = torch._C._current_graph_task_id

# Where tensors lie, for C. Absent before torch 2.10: hooks are Python then.
_exchange: Any = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


def _new_quick(flight: Flight) -> Any:
    """C's list of gradients under way, or None."""
    me = weakref.ref(flight)

    def begin() -> None:
        there = me()
        if there is not None and there.task != current_task():
            there.await_end_of_backward()

    made = NotImplemented if _exchange is None else _calls.new_flight(_exchange, current_task, begin)
    return None if made is NotImplemented else made


class Flight:
    """Buckets and sparse gradients under way, in the order in which they were sent."""

    __slots__ = (
        "__weakref__", "_backward_done", "buckets", "fast", "gathers", "quick", "task", "unannounced",
    )  # fmt: skip

    def __init__(self, backward_done: Callable[[], Optional[Callable[[], None]]]) -> None:
        """
        Args:
            backward_done: refers weakly to what is to be called at the end of a backward.
        """
        self._backward_done = backward_done
        self.fast = False  # hooks may take the short way
        self.task = -1  # graph task whose end is already being waited for
        self.buckets: Deque[Bucket] = collections.deque()
        self.gathers: Deque[Slot] = collections.deque()  # sparse reductions
        self.unannounced = 0  # bytes submitted since the engine was last woken
        self.quick = _new_quick(self)

    def choose_way(self, fast: bool) -> None:
        """Says whether hooks may take the short way."""
        self.fast = fast
        if self.quick is not None:
            _calls.open_flight(self.quick, fast)

    def prepare(self, slot: Slot, number: int) -> None:
        """Tells the slot's hook, if that is C, about the running engine; it names the slot by that number."""
        if slot.quick is not None:
            request = slot.bucket.quiet[0] if slot.fast else 0
            enough = GPU_WAKE_BYTES if slot.device >= 0 else WAKE_BYTES
            _calls.prepare_gradient(slot.quick, request, number, slot.bucket.nbytes, enough)

    def send_quick(self) -> int:
        """Submits what C's hooks have left to be submitted; how many are under way by them."""
        return 0 if self.quick is None else int(_calls.send_gradients(self.quick))

    def finish_quick(self) -> None:
        """Waits for what is under way by C's hooks."""
        _calls.finish_gradients(self.quick)

    def absorb(self, slots: List[Slot], round_: int) -> None:
        """Takes over what is under way by C's hooks, of these slots, for `wait`."""
        if self.send_quick() == 0:
            return
        for number, grad, storage, handle in _calls.take_gradients(self.quick):
            slot = slots[number]
            if handle == 0:  # waited for already
                slot.reduce_done(round_)
                continue
            slot.grad, slot.storage = grad, storage
            slot.bucket.handle = handle
            self.buckets.append(slot.bucket)

    def clear(self) -> None:
        """Forgets everything: the engine it was sent to is gone."""
        if self.quick is not None:
            _calls.take_gradients(self.quick)
        self.buckets.clear()
        self.gathers.clear()

    def await_end_of_backward(self) -> None:
        """Called by the first hook of a backward."""
        self.task = current_task()
        torch.autograd.Variable._execution_engine.queue_callback(self._at_end_of_backward)

    def _at_end_of_backward(self) -> None:
        self.task = -1
        done = self._backward_done()
        if done is not None:
            done()

    def send(self, bucket: Bucket) -> None:
        """Submits a bucket whose gradients are all there."""
        self.unannounced += bucket.nbytes
        wake = self.unannounced >= (GPU_WAKE_BYTES if bucket.devices else WAKE_BYTES)
        if wake:
            self.unannounced = 0
        try:
            bucket.send(wake)
        except Exception:
            bucket.reset()
            raise
        self.buckets.append(bucket)

    def wait(self, round_: int) -> None:
        """Waits for everything under way and puts the results into the gradients of that step."""
        self.unannounced = 0
        finish = _calls.finish
        while self.buckets:  # an interrupted wait can be taken up again
            bucket = self.buckets[0]
            submission = bucket.handle
            if bucket.devices:
                for device in bucket.devices:  # the gradients are used on its current stream
                    engine.wait_stream(submission, current_stream(device))
                engine.release(submission)
            else:
                finish(submission)
            slot = bucket.slots[0]
            if slot.fast and slot.wire is None:  # the reduction is in the gradient's memory already
                slot.grad = slot.storage = None
                slot.reduce_done(round_)
                bucket.missing = 1
            else:
                with torch.no_grad():
                    for slot in bucket.slots:
                        slot.complete(round_)
                bucket.reset()
            self.buckets.popleft()
        while self.gathers:
            slot = self.gathers[0]
            assert slot.finish is not None
            slot.param.grad = slot.grad = slot.finish()
            with torch.no_grad():
                slot.complete(round_)
            slot.clear()
            self.gathers.popleft()

    def abandon(self) -> None:
        """Forgets what is under way, after a failure. Memory the engine may still write to is kept for it."""
        if self.quick is not None:
            for _, grad, storage, handle in _calls.take_gradients(self.quick):
                engine.abandon(handle, (grad, storage))
        for bucket in self.buckets:
            if bucket.handle:
                engine.abandon(bucket.handle, bucket.memory())
        self.clear()
