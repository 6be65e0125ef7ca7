# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors in the order of their streams.

The engine works on a CUDA tensor where it lies, on a stream of its own. A submission begins after what the
caller's stream was given before it; when it is waited for, that stream waits, and the caller does not. Memory
that the engine uses stays referenced until then, so that torch gives it to nobody who could come in between.

Other accelerators (ROCm among them) go through host memory.
"""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch

from horovod.common import engine
from horovod.common.handles import Handle

# The number of a device's current stream; 0 is the default stream.
current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)

# The number of a tensor's device of whatever kind, -1 for the host; quicker than device_of, for a tensor that
# can only lie on the host or on a device that is known already.
device_number: Callable[[torch.Tensor], int] = torch.Tensor.get_device

if torch.version.cuda is not None:

    def device_of(tensor: torch.Tensor) -> int:
        """The CUDA device on which the engine can work on the tensor where it lies; -1 for none."""
        return tensor.get_device() if tensor.is_cuda else -1

else:

    def device_of(tensor: torch.Tensor) -> int:
        return -1


class StreamHandle(Handle):
    """A call under way on CUDA tensors: whoever asks for its result goes on at once, and its stream waits."""

    __slots__ = ("_streams",)

    def __init__(
        self, submission: int, collect: Callable[[int], Any], keep: Any, streams: Dict[int, int]
    ) -> None:
        """
        Args:
            streams: for each device the stream that was current at submission.
        """
        super().__init__(submission, collect, keep)
        self._streams = streams

    def wait(self, submission: int) -> None:
        for device, submitted in self._streams.items():
            current = current_stream(device)
            engine.wait_stream(submission, current)
            if current != submitted:  # memory that came from there goes back there
                engine.wait_stream(submission, submitted)
