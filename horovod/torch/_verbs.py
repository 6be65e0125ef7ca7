# SPDX-License-Identifier: Apache-2.0
"""One collective on one or several torch tensors, from arguments to outputs.

Every public verb is a row of `VERBS` and a call of `blocking` or `asynchronous`:

    reads       how an input becomes memory            `_tensor.to_wire`
    writes      where the output goes                  SAME    the input's shape, known now
                                                       SCATTER fewer rows, known now
                                                       GATHER  known when the ranks have met: engine memory
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from horovod.common import constants, engine, names
from horovod.common._native import Request
from horovod.common.basics import basics
from horovod.common.constants import Sum
from horovod.common.exceptions import NOT_INITIALIZED, HorovodInternalError
from horovod.torch import _handles, _staging
from horovod.torch._tensor import CODES, from_wire, is_plain, to_wire

SAME, SCATTER, GATHER = range(3)


class Verb(NamedTuple):
    """What distinguishes one collective from another."""

    kind: int
    writes: int
    reduces: bool


VERBS: Dict[str, Verb] = {
    "allreduce": Verb(constants.ALLREDUCE, SAME, True),
    "allgather": Verb(constants.ALLGATHER, GATHER, False),
    "broadcast": Verb(constants.BROADCAST, SAME, False),
    "alltoall": Verb(constants.ALLTOALL, GATHER, False),
    "reducescatter": Verb(constants.REDUCESCATTER, SCATTER, True),
}


class Options(NamedTuple):
    """The arguments of a collective beside its tensors."""

    op: int = Sum
    root: int = -1
    splits: Optional[List[int]] = None
    prescale: float = 1.0
    postscale: float = 1.0


def place_in(set_id: int) -> Tuple[int, int]:
    """The size of a process set and this rank's index in it."""
    if not basics.is_initialized():
        raise HorovodInternalError(NOT_INITIALIZED)
    if set_id == 0:
        return basics.size(), basics.rank()
    members = basics.process_set_ranks(set_id)
    if basics.rank() not in members:
        raise ValueError(f"Invalid process set id for this rank: {set_id}")
    return len(members), members.index(basics.rank())


def scattered_rows(rows: int, set_id: int) -> int:
    """How many of `rows` rows reducescatter leaves on this rank."""
    members, me = place_in(set_id)
    return rows // members + (1 if me < rows % members else 0)


class Operation:
    """One submission: its requests, what they point into, and how its outputs are made."""

    __slots__ = (
        "_events", "_grouped", "_handle", "_in_place", "_inputs", "_outputs", "_requests", "_ticket", "_verb",
        "_wires",
    )  # fmt: skip

    def __init__(
        self,
        verb_name: str,
        tensors: Sequence[torch.Tensor],
        name: Optional[str],
        options: Options,
        set_id: int,
        *,
        in_place: bool = False,
        grouped: bool = False,
    ) -> None:
        verb = VERBS[verb_name]
        self._verb = verb
        self._inputs = tensors = list(tensors)  # may be any iterable, and is gone through more than once
        self._in_place = in_place
        self._grouped = grouped
        self._handle = 0
        self._ticket: Optional[_staging.Ticket] = None
        self._wires: List[torch.Tensor] = []
        self._outputs: List[Optional[torch.Tensor]] = []
        self._requests: List[Request] = []
        self._events: List[Any] = []
        if grouped:
            base = names.wire_name(f"grouped_{verb_name}", name, set_id)
            wire_names = names.member_names(base, len(tensors))
        else:
            wire_names = [names.wire_name(verb_name, name, set_id)]
        for tensor, wire_name in zip(tensors, wire_names):
            self._add(tensor, wire_name, options, set_id)

    def _add(self, tensor: torch.Tensor, name: str, options: Options, set_id: int) -> None:
        verb = self._verb
        if is_plain(tensor):
            wire, private = tensor, False
        else:
            wire = to_wire(tensor, options.op if verb.reduces else None)
            private = wire.data_ptr() != tensor.data_ptr()  # a copy: may be overwritten
            if wire.is_cuda:
                wire, event = _staging.to_host(wire)
                self._events.append(event)
                private = True
            elif not wire.is_cpu:
                wire, private = wire.cpu(), True
        output: Optional[torch.Tensor] = None
        if verb.writes == SAME:
            output = wire if private or self._in_place else torch.empty_like(wire)
        elif verb.writes == SCATTER:
            if wire.dim() == 0:
                raise ValueError("Reducescatter does not support scalar inputs")
            rows = scattered_rows(wire.shape[0], set_id)
            output = torch.empty((rows, *wire.shape[1:]), dtype=wire.dtype)
        self._wires.append(wire)
        self._outputs.append(output)
        self._requests.append(
            engine.request(
                verb.kind,
                name,
                CODES[wire.dtype],
                tuple(wire.shape),
                wire.data_ptr(),
                0 if output is None else output.data_ptr(),
                op=options.op,
                root=options.root,
                splits=options.splits,
                prescale=options.prescale,
                postscale=options.postscale,
                process_set=set_id,
            )
        )

    def run(self) -> Any:
        """Submits, waits and returns the outputs."""
        if not self._requests:
            return self._pack([])
        for event in self._events:
            event.synchronize()
        handle = engine.run(self._requests, keep=(self._wires, self._outputs))
        return self._collect(handle)

    def start(self) -> int:
        """Submits and returns a handle for `poll` and `synchronize`."""
        if self._requests:
            if self._events:
                self._ticket = _staging.submit_after(tuple(self._events), self._submit)
            else:
                self._handle = self._submit()
        return _handles.register(self)

    def _submit(self) -> int:
        return engine.submit(self._requests, keep=(self._wires, self._outputs, self._inputs))

    def done(self) -> bool:
        if not self._requests:
            return True
        if self._ticket is not None:
            return self._ticket.submitted() and engine.poll(self._ticket.handle())
        return engine.poll(self._handle)

    def result(self) -> Any:
        if not self._requests:
            return self._pack([])
        handle = self._handle if self._ticket is None else self._ticket.handle()
        try:
            engine.wait(handle)
        except BaseException:
            engine.release(handle)
            raise
        return self._collect(handle)

    def _collect(self, handle: int) -> Any:
        try:
            results = [self._output(handle, index) for index in range(len(self._requests))]
        finally:
            engine.release(handle)
        return self._pack(results)

    def _pack(self, results: List[Any]) -> Any:
        return tuple(results) if self._grouped else results[0]

    def _output(self, handle: int, index: int) -> Any:
        tensor, wire, output = self._inputs[index], self._wires[index], self._outputs[index]
        if output is None:
            gathered, splits = _take(handle, index, wire.dtype)
            made = from_wire(gathered, tensor)
            return made if self._verb.kind != constants.ALLTOALL else (made, splits)
        if self._in_place:
            if output.data_ptr() != tensor.data_ptr():
                with torch.no_grad():
                    tensor.copy_(from_wire(output, tensor), non_blocking=True)
            return tensor
        made = from_wire(output, tensor)
        if self._verb.writes == SAME and not tensor.is_contiguous():
            shaped = torch.empty_like(tensor)  # keeps channels_last
            return made if shaped.is_contiguous() else shaped.copy_(made)
        return made


def _take(handle: int, index: int, dtype: torch.dtype) -> Tuple[torch.Tensor, torch.Tensor]:
    """An output whose memory the engine allocated, without a copy; alltoall's received splits with it."""
    buffer = engine.take(handle, index, dtype.itemsize)
    splits = torch.tensor(buffer.splits, dtype=torch.int32)
    if buffer.nbytes == 0:
        return torch.empty(buffer.shape, dtype=dtype), splits
    return torch.frombuffer(buffer.array(), dtype=dtype).view(buffer.shape), splits


def allreduce_now(
    tensor: torch.Tensor, name: Optional[str], options: Options, set_id: int, in_place: bool = False
) -> torch.Tensor:
    """Blocking allreduce; the commonest call takes the shortest way."""
    if not is_plain(tensor):
        operation = Operation("allreduce", [tensor], name, options, set_id, in_place=in_place)
        result: torch.Tensor = operation.run()
        return result
    output = tensor if in_place else torch.empty_like(tensor)
    request = engine.request(
        constants.ALLREDUCE,
        names.wire_name("allreduce", name, set_id),
        CODES[tensor.dtype],
        tensor.shape,
        tensor.data_ptr(),
        output.data_ptr(),
        op=options.op,
        prescale=options.prescale,
        postscale=options.postscale,
        process_set=set_id,
    )
    request.keep = (request.keep, tensor, output)
    engine.run_released(request)
    return output
