# SPDX-License-Identifier: Apache-2.0
"""The gradients that are submitted together: one, or a group of the user's.

Their requests are built once for the running engine; from step to step only the addresses change.
"""

from __future__ import annotations

from typing import Any, List, Optional

import torch

from horovod.common import _native, names
from horovod.common.calls import Call
from horovod.common.exceptions import raise_for
from horovod.common.requests import Standing
from horovod.torch._slots import Slot
from horovod.torch._staging import StagedHandle
from horovod.torch._tensor import CODES


class Bucket:
    """Slots that are submitted together, and their standing requests."""

    __slots__ = (
        "_shapes", "_standing", "handle", "loud", "missing", "nbytes", "quiet", "slots",
        "staged", "words",
    )  # fmt: skip

    def __init__(self, slots: List[Slot]) -> None:
        self.slots = slots
        self.nbytes = sum(slot.param.numel() * slot.param.element_size() for slot in slots)
        for index, slot in enumerate(slots):
            slot.bucket, slot.index = self, index

    def bind(self, call: Call, prefix: str) -> None:
        """Builds the requests, for the engine that runs now.

        Args:
            call: how gradients are reduced.
            prefix: tells the names of several optimizers apart, e.g. "opt1."; the first has none.
        """
        first = f"{prefix}{self.slots[0].name}"
        if len(self.slots) == 1:
            wire_names = [f"{call.verb.name}.{first}"]
        else:
            wire_names = names.member_names(f"{call.verb.prefix(grouped=True)}.{first}", len(self.slots))
        self._shapes = [slot.shape for slot in self.slots]
        self._standing = Standing(
            [
                call.request(name, CODES.get(slot.dtype, 0), slot.shape, 0, 0)
                for slot, name in zip(self.slots, wire_names)
            ]
        )
        # For the hook: the shortest way to send the one gradient of most buckets.
        self.quiet, self.loud, self.words = self._standing.quiet, self._standing.loud, self._standing.words
        self.reset()

    def reset(self) -> None:
        """Ready for the next reduction."""
        self.missing = len(self.slots)  # gradients that are not there yet
        self.handle = 0  # the engine's, while under way
        self.staged: Optional[StagedHandle] = None  # while a device prepares what is to be sent
        for slot in self.slots:
            slot.clear()

    def point(self, slot: Slot, address: int) -> None:
        """Says where a slot's gradient lies this time."""
        request = self._standing.requests[slot.index]
        request.input = request.output = address

    def carry(self, slot: Slot, wire: torch.Tensor) -> None:
        """Says what travels for a slot's gradient this time: it may be of another type and shape."""
        self.point(slot, wire.data_ptr())
        self._standing.requests[slot.index].dtype = CODES[wire.dtype]
        shape = tuple(wire.shape)
        if shape != self._shapes[slot.index]:
            self._shapes[slot.index] = shape
            self._standing.reshape(slot.index, shape)

    def send(self, wake: bool) -> None:
        """Submits the gradients, now or when their device is ready. Raises what the engine refuses."""
        events = [slot.event for slot in self.slots if slot.event is not None]
        if events:
            self.staged = StagedHandle(events, lambda: self._submitted(wake), _no_result, self.memory())
        else:
            self.handle = self._submitted(wake)

    def _submitted(self, wake: bool) -> int:
        handle: int = _native.lib().hvd_submit(*(self.loud if wake else self.quiet))
        if handle < 0:
            raise_for(handle, _native.last_error())
        return handle

    def submission(self) -> int:
        """The engine's handle; waits for the device."""
        return self.handle if self.staged is None else self.staged.submission()

    def memory(self) -> Any:
        """What the engine reads and writes for this bucket."""
        return [(slot.grad, slot.storage, slot.wire) for slot in self.slots]


def _no_result(submission: int) -> None:
    """The result is in the slots' memory."""
