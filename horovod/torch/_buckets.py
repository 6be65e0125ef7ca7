# SPDX-License-Identifier: Apache-2.0
"""The gradients that are submitted together: one, or a group of the user's.

Their requests are built once for the running engine; from step to step only the addresses change.
"""

from __future__ import annotations

from typing import Any, List

import torch

from horovod.common import _calls, names
from horovod.common.calls import Call
from horovod.common.requests import Standing
from horovod.torch._cuda import current_stream, device_of
from horovod.torch._slots import Slot
from horovod.torch._tensor import CODES


class Bucket:
    """Slots that are submitted together, and their standing requests."""

    __slots__ = (
        "_shapes", "_standing", "devices", "handle", "loud", "missing", "names", "nbytes", "quiet", "slots",
        "words",
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
            self.names = [f"{call.verb.name}.{first}"]
        else:
            self.names = names.member_names(f"{call.verb.prefix(grouped=True)}.{first}", len(self.slots))
        self._shapes = [slot.shape for slot in self.slots]
        self._standing = Standing(
            [
                call.request(name, CODES.get(slot.dtype, 0), slot.shape, 0, 0, slot.device)
                for slot, name in zip(self.slots, self.names)
            ]
        )
        for request, slot in zip(self._standing.requests, self.slots):
            request.wire_dtype = slot.cast
        # For the hook: the shortest way to send the one gradient of most buckets.
        self.quiet, self.loud, self.words = self._standing.quiet, self._standing.loud, self._standing.words
        self.reset()

    def reset(self) -> None:
        """Ready for the next reduction."""
        self.missing = len(self.slots)  # gradients that are not there yet
        self.handle = 0  # the engine's, while under way
        self.devices = {slot.device for slot in self.slots} - {-1}  # whose streams wait for the result
        for slot in self.slots:
            slot.clear()

    def point(self, slot: Slot, tensor: torch.Tensor) -> None:
        """Says where a slot's gradient lies this time, or what travels for it."""
        request = self._standing.requests[slot.index]
        request.input = request.output = tensor.data_ptr()
        device = device_of(tensor)
        if device >= 0:
            request.stream = current_stream(device)
        if device != request.device:  # the model was moved since
            request.device, request.wire_dtype = device, slot.cast if device >= 0 else 0
            self.devices = {one.device for one in self._standing.requests} - {-1}

    def carry(self, slot: Slot, wire: torch.Tensor) -> None:
        """Says what travels for a slot's gradient this time: it may be of another type and shape."""
        self.point(slot, wire)
        self._standing.requests[slot.index].dtype = CODES[wire.dtype]
        shape = tuple(wire.shape)
        if shape != self._shapes[slot.index]:
            self._shapes[slot.index] = shape
            self._standing.reshape(slot.index, shape)

    def send(self, wake: bool) -> None:
        """Submits the gradients. Raises what the engine refuses."""
        self.handle = _calls.start_standing(*(self.loud if wake else self.quiet))

    def memory(self) -> Any:
        """What the engine reads and writes for this bucket."""
        return [(slot.grad, slot.storage, slot.wire) for slot in self.slots]
