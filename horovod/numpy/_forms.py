# SPDX-License-Identifier: Apache-2.0
"""The forms of a collective on arrays: blocking or not, in place or not, of one array or of several.

The public functions in collectives.py end here: with the arguments of a `Call`, or with one.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from horovod.common import _calls, copies, engine, handles
from horovod.common._native import Request
from horovod.common.arguments import as_splits, check_rows, check_splits
from horovod.common.calls import Call
from horovod.common.constants import Sum
from horovod.common.handles import Handle, WrittenHandle
from horovod.common.members import place_in
from horovod.common.verbs import Result, Verb
from horovod.numpy._arrays import address, as_array, dtype_number, from_owned, like

_ndarray = np.ndarray
_SAME = Result.SAME


class _Piece:
    """One array of a call: the memory that is read and written, and the result it becomes."""

    __slots__ = ("array", "copied", "given", "in_place", "input", "name", "output")

    def __init__(self, call: Call, given: Any, in_place: bool) -> None:
        array = given if type(given) is np.ndarray else as_array(given)
        self.given = given
        self.array = array
        self.in_place = in_place
        self.input, self.copied = array, None
        if not array.flags.c_contiguous:
            self.input, self.copied = copies.timed(np.ascontiguousarray, array)
        self.output: Any = None  # the engine allocates it
        if in_place:
            self.output = self._writable()
        elif call.verb.result is Result.SAME:
            self.output = like(self.input)
        elif call.verb.result is Result.SCATTERED:
            check_rows(call.verb, array.ndim)

    def _writable(self) -> Any:
        if not isinstance(self.given, np.ndarray) and not np.shares_memory(self.array, as_array(self.given)):
            raise TypeError(
                f"{type(self.given).__name__} has no memory to write into; use the form without '_'"
            )
        if not self.array.flags.writeable:
            raise ValueError("the array is read-only; use the form without '_'")
        return self.input

    def request(self, call: Call, name: str) -> Request:
        self.name = name
        copies.before(name, self.copied)
        source, target = self.input, self.output
        read = address(source)
        written = 0 if target is None else read if target is source else address(target)
        return call.request(name, dtype_number(source.dtype), source.shape, read, written)

    def result(self, submission: int = 0, index: int = 0) -> Any:
        output = self.output
        if output is None:
            dtype = self.input.dtype
            return from_owned(engine.take(submission, index, dtype.itemsize), dtype)
        if self.in_place:
            if output is not self.array:  # worked on a dense copy of a strided array
                copies.after(self.name, copies.timed(np.copyto, self.array, output)[1])
            return self.given
        return output if output.ndim or isinstance(self.given, np.ndarray) else output[()]


def _run(call: Call, tensor: Any, in_place: bool) -> Any:
    piece = _Piece(call, tensor, in_place)
    request = piece.request(call, call.wire_name())
    if piece.output is not None:
        engine.run_released(request, piece)
        return piece.result()
    submission = engine.run((request,), piece)
    try:
        return piece.result(submission)
    finally:
        engine.release(submission)


def _start(call: Call, tensor: Any, in_place: bool) -> int:
    piece = _Piece(call, tensor, in_place)
    request = piece.request(call, call.wire_name())
    return handles.register(Handle(engine.submit((request,)), piece.result, piece))


# The usual case goes to the engine in one step: a dense array of a type that the buffer protocol knows, a
# name, an output of the array's shape. _calls says NotImplemented of all else, which goes the way above.
# *call: the arguments of Call after the verb. Who blocks spells them out: packing them takes a sixth of the
# microsecond in which a rank alone is done.


def run(
    tensor: Any, verb: Verb, name: Optional[str], process_set: int, op: int = Sum,
    prescale: float = 1.0, postscale: float = 1.0, root: int = -1,
) -> Any:  # fmt: skip
    """Blocking, into a new array."""
    if type(tensor) is _ndarray and verb.result is _SAME:
        output = like(tensor)
        done = _calls.run_array(
            tensor, output, verb.kind, verb.name, name, process_set, op, prescale, postscale, root
        )
        if done is None:
            return output
    return _run(Call(verb, name, process_set, op, prescale, postscale, root), tensor, False)


def run_in_place(
    tensor: Any, verb: Verb, name: Optional[str], process_set: int, op: int = Sum,
    prescale: float = 1.0, postscale: float = 1.0, root: int = -1,
) -> Any:  # fmt: skip
    """Blocking, into the array itself, which is returned."""
    if type(tensor) is _ndarray:
        done = _calls.run_array(
            tensor, tensor, verb.kind, verb.name, name, process_set, op, prescale, postscale, root
        )
        if done is None:
            return tensor
    return _run(Call(verb, name, process_set, op, prescale, postscale, root), tensor, True)


def start(tensor: Any, verb: Verb, *call: Any) -> int:
    """Asynchronous, into a new array."""
    if type(tensor) is _ndarray and verb.result is _SAME:
        output = like(tensor)
        submission = _calls.start_array(tensor, output, verb.kind, verb.name, *call)
        if submission is not NotImplemented:
            return handles.register(WrittenHandle(submission, output, tensor))
    return _start(Call(verb, *call), tensor, False)


def start_in_place(tensor: Any, verb: Verb, *call: Any) -> int:
    """Asynchronous, into the array itself."""
    if type(tensor) is _ndarray:
        submission = _calls.start_array(tensor, tensor, verb.kind, verb.name, *call)
        if submission is not NotImplemented:
            return handles.register(WrittenHandle(submission, tensor, tensor))
    return _start(Call(verb, *call), tensor, True)


class _Group:
    """Several arrays handled as one."""

    def __init__(self, call: Call, tensors: Sequence[Any], in_place: bool) -> None:
        self.pieces = [_Piece(call, tensor, in_place) for tensor in tensors]
        names = call.wire_names(len(self.pieces))
        self.requests = [piece.request(call, name) for piece, name in zip(self.pieces, names)]

    def run(self) -> List[Any]:
        if not self.pieces:
            return []
        submission = engine.run(self.requests, self.pieces)
        try:
            return self.results(submission)
        finally:
            engine.release(submission)

    def start(self) -> int:
        submission = engine.submit(self.requests, group=True) if self.pieces else 0
        return handles.register(Handle(submission, self.results, self.pieces))

    def results(self, submission: int) -> List[Any]:
        return [piece.result(submission, index) for index, piece in enumerate(self.pieces)]


def _all_arrays(tensors: Sequence[Any]) -> bool:
    return all([type(tensor) is _ndarray for tensor in tensors])


def run_group(tensors: Sequence[Any], verb: Verb, *call: Any) -> List[Any]:
    """Blocking, of several arrays, into new ones."""
    tensors = list(tensors)
    if verb.result is _SAME and _all_arrays(tensors):
        outputs = [like(tensor) for tensor in tensors]
        if _calls.run_arrays(tensors, outputs, verb.kind, verb.prefix(grouped=True), *call) is None:
            return outputs
    return _Group(Call(verb, *call), tensors, False).run()


def run_group_in_place(tensors: Sequence[Any], verb: Verb, *call: Any) -> List[Any]:
    """Blocking, of several arrays, into themselves."""
    tensors = list(tensors)
    if _all_arrays(tensors):
        if _calls.run_arrays(tensors, tensors, verb.kind, verb.prefix(grouped=True), *call) is None:
            return tensors
    return _Group(Call(verb, *call), tensors, True).run()


def start_group(tensors: Sequence[Any], verb: Verb, *call: Any) -> int:
    """Asynchronous, of several arrays, into new ones."""
    tensors = list(tensors)
    if verb.result is _SAME and _all_arrays(tensors):
        outputs = [like(tensor) for tensor in tensors]
        submission = _calls.start_arrays(tensors, outputs, verb.kind, verb.prefix(grouped=True), *call)
        if submission is not NotImplemented:
            return handles.register(WrittenHandle(submission, outputs, tensors))
    return _Group(Call(verb, *call), tensors, False).start()


def start_group_in_place(tensors: Sequence[Any], verb: Verb, *call: Any) -> int:
    """Asynchronous, of several arrays, into themselves."""
    tensors = list(tensors)
    if _all_arrays(tensors):
        submission = _calls.start_arrays(tensors, tensors, verb.kind, verb.prefix(grouped=True), *call)
        if submission is not NotImplemented:
            return handles.register(WrittenHandle(submission, tensors, tensors))
    return _Group(Call(verb, *call), tensors, True).start()


class _Exchange:
    """One array whose rows go to the members by `call.splits`."""

    def __init__(self, call: Call, tensor: Any) -> None:
        self.piece = _Piece(call, tensor, False)
        splits = as_splits(call.splits)
        if self.piece.array.ndim:  # without rows it is refused by all ranks together
            splits = check_splits(splits, len(self.piece.array), place_in(call.process_set, call.verb)[0])
        self.request = self.piece.request(call._replace(splits=splits), call.wire_name())

    def both(self, submission: int) -> Tuple[Any, Any]:
        received = np.array(engine.output(submission).splits_list(), np.int32)
        return self.piece.result(submission), received


def exchange(call: Call, tensor: Any) -> Any:
    """Blocking; also returns how many rows came from each member, if splits were given."""
    one = _Exchange(call, tensor)
    submission = engine.run((one.request,), one)
    try:
        both = one.both(submission)
    finally:
        engine.release(submission)
    return both[0] if call.splits is None else both


def start_exchange(call: Call, tensor: Any) -> int:
    """Asynchronous; the result is always both."""
    one = _Exchange(call, tensor)
    return handles.register(Handle(engine.submit((one.request,)), one.both, one))
