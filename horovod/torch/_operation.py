# SPDX-License-Identifier: Apache-2.0
"""One collective on one or several torch tensors, from its call to its outputs.

How an input becomes memory is in _tensor.py. Where the output goes follows from the verb's `Result`: into
memory of the input's shape or of this rank's share of it, made here, or, where only the ranks together know
the shape, into memory of the engine.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from horovod.common import _calls, copies, engine, handles
from horovod.common._native import Request
from horovod.common.arguments import check_rows
from horovod.common.calls import Call
from horovod.common.handles import Handle
from horovod.common.members import place_in
from horovod.common.verbs import Result, scattered_rows
from horovod.torch import _ranges
from horovod.torch._cuda import StreamHandle, current_stream, device_of
from horovod.torch._tensor import CODES, from_wire, is_plain, lasting_view, to_wire


class Operation:
    """One submission: its requests, what they point into, and how its outputs are made."""

    __slots__ = (
        "_call", "_grouped", "_in_place", "_inputs", "_lasting", "_names", "_outputs", "_requests",
        "_streams", "_wires",
    )  # fmt: skip

    def __init__(
        self,
        call: Call,
        tensors: Sequence[torch.Tensor],
        in_place: bool = False,
        grouped: bool = False,
        lasting: bool = False,
    ) -> None:
        """
        Args:
            lasting: goes on after the user has the tensors back, so their memory must not go away.
        """
        self._call = call
        self._lasting = lasting
        self._inputs = tensors = list(tensors)  # may be any iterable, and is gone through more than once
        self._in_place = in_place
        self._grouped = grouped
        self._wires: List[torch.Tensor] = []
        self._outputs: List[Optional[torch.Tensor]] = []
        self._requests: List[Request] = []
        self._streams: Dict[int, int] = {}  # of the CUDA devices: the current ones
        self._names = call.wire_names(len(tensors)) if grouped else [call.wire_name()]
        for tensor, name in zip(tensors, self._names):
            self._add(tensor, name)

    def _add(self, tensor: torch.Tensor, name: str) -> None:
        call, result = self._call, self._call.verb.result
        if is_plain(tensor):
            wire, private = lasting_view(tensor) if self._lasting else tensor, False
        else:
            wire, copied = copies.timed(to_wire, tensor, call.op if call.verb.reductions else None)
            private = wire.data_ptr() != tensor.data_ptr()  # a copy: may be overwritten
            copies.before(name, copied if private else None)
            if self._lasting and not private:
                wire = lasting_view(wire)
        output: Optional[torch.Tensor] = None
        if result is Result.SAME:
            output = wire if private or self._in_place else torch.empty_like(wire)
        elif result is Result.SCATTERED:
            check_rows(call.verb, tensor.dim())
            rows = scattered_rows(wire.shape[0], *place_in(call.process_set, call.verb))
            output = torch.empty((rows, *wire.shape[1:]), dtype=wire.dtype, device=wire.device)
        self._wires.append(wire)
        self._outputs.append(output)
        written = 0 if output is None else output.data_ptr()
        device, stream = device_of(wire), 0
        if device >= 0:
            stream = self._streams[device] = current_stream(device)
        # A complex scalar has no rows, whatever its parts look like: all ranks refuse it together.
        shape = () if call.verb.by_rows and tensor.dim() == 0 else tuple(wire.shape)
        self._requests.append(
            call.request(name, CODES[wire.dtype], shape, wire.data_ptr(), written, device, stream)
        )

    def run(self) -> Any:
        """Submits, waits and returns the outputs."""
        with _ranges.named(f"hvd.{self._call.verb.name}"):
            return self._run()

    def _run(self) -> Any:
        if not self._requests:
            return self._collect(0)
        if self._streams:
            submission = engine.submit(self._requests, will_wait=True)
            return StreamHandle(submission, self._collect, self, self._streams).result()
        submission = engine.run(self._requests, self)
        try:
            return self._collect(submission)
        finally:
            engine.release(submission)

    def start(self) -> int:
        """Submits and returns a handle for `poll` and `synchronize`."""
        submission = engine.submit(self._requests) if self._requests else 0
        if self._streams:
            return handles.register(StreamHandle(submission, self._collect, self, self._streams))
        return handles.register(Handle(submission, self._collect, self))

    def _collect(self, submission: int) -> Any:
        results = [self._output(submission, index) for index in range(len(self._requests))]
        return tuple(results) if self._grouped else results[0]

    def _output(self, submission: int, index: int) -> Any:
        tensor, wire, output = self._inputs[index], self._wires[index], self._outputs[index]
        if output is None:
            gathered, splits = (_take if device_of(wire) < 0 else _copy)(submission, index, wire)
            made = from_wire(gathered, tensor)
            return (made, splits) if self._call.verb.result is Result.EXCHANGED else made
        if self._in_place:
            if output.data_ptr() != tensor.data_ptr():
                with torch.no_grad():
                    self._copy_out(index, tensor, from_wire(output, tensor))
            return tensor
        made = from_wire(output, tensor)
        if self._call.verb.result is Result.SAME and not tensor.is_contiguous():
            shaped = torch.empty_like(tensor)  # keeps channels_last
            return made if shaped.is_contiguous() else self._copy_out(index, shaped, made)
        return made

    def _copy_out(self, index: int, target: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        target, copied = copies.timed(target.copy_, result, non_blocking=True)
        copies.after(self._names[index], copied)
        return target


def _take(submission: int, index: int, wire: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """An output whose memory the engine allocated, without a copy; alltoall's received splits with it."""
    buffer = engine.take(submission, index, wire.dtype.itemsize)
    splits = torch.tensor(buffer.splits, dtype=torch.int32)
    if buffer.nbytes == 0:
        return torch.empty(buffer.shape, dtype=wire.dtype), splits
    return torch.frombuffer(buffer.array(), dtype=wire.dtype).view(buffer.shape), splits


def _copy(submission: int, index: int, wire: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """The same on a CUDA device: a copy, in memory of torch's own, in the order of the current stream."""
    there = engine.output(submission, index)
    made = torch.empty(there.shape_tuple(), dtype=wire.dtype, device=wire.device)
    engine.copy_output(submission, index, made.data_ptr(), current_stream(device_of(wire)))
    return made, torch.tensor(there.splits_list(), dtype=torch.int32)


def run_one(call: Call, tensor: torch.Tensor, in_place: bool = False) -> Any:
    """Blocking, of one tensor; the commonest case takes the shortest way."""
    if call.verb.result is not Result.SAME or not is_plain(tensor) or _ranges.wanted():
        return Operation(call, (tensor,), in_place).run()
    address, code = tensor.data_ptr(), CODES[tensor.dtype]
    output, written = tensor, address
    if not in_place:
        output = torch.empty_like(tensor)
        written = output.data_ptr()
    device = device_of(tensor)
    stream = current_stream(device) if device >= 0 else 0
    if call.name is not None:
        done = _calls.run_memory(
            (tensor, output), code, tensor.shape, address, written, call.verb.kind, call.verb.name, call.name,
            call.process_set, call.op, call.prescale, call.postscale, call.root, device, stream,
        )  # fmt: skip
        if done is None:
            return output
    request = call.request(call.wire_name(), code, tensor.shape, address, written, device, stream)
    engine.run_released(request, (tensor, output))
    return output
