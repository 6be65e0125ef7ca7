# SPDX-License-Identifier: Apache-2.0
"""Python objects as collectives, without any framework: `broadcast_object` and `allgather_object`.

An object travels as one message: a 16-byte frame header, the sizes of its buffers, the pickle, then the
buffers. Large arrays are pickled out of band (protocol 5), so they are copied once and not inside the pickle
stream. Who can write such a message can run code here; so between hosts every message is sealed (seals.py)
and nothing is unpickled that a rank of this job did not send, to this place in the program.
"""

from __future__ import annotations

import ctypes
import pickle
import struct
from typing import Any, List, Optional, Tuple

from horovod.common import constants as c
from horovod.common import engine, names, topology
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id, ranks_of
from horovod.common.seals import HEAD_BYTES, Messages

_HEADER = struct.Struct("<QQ")  # pickle size, number of buffers
_SIZE = struct.Struct("<Q")
_DEFAULT_NAME = "object"  # not made from the type: ranks other than the root usually pass None


def dumps(obj: Any) -> bytearray:
    """An object as one message. Lambdas and classes of __main__ work too (cloudpickle)."""
    import cloudpickle

    buffers: List[pickle.PickleBuffer] = []
    body = cloudpickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    message = bytearray(_HEADER.pack(len(body), len(raw)))
    for view in raw:
        message += _SIZE.pack(view.nbytes)
    message += body
    for view in raw:
        message += view
    return message


def loads(message: Any) -> Any:
    """The object of a message. Arrays inside are writable views of the message's memory."""
    view = memoryview(message).cast("B")
    body_size, count = _HEADER.unpack_from(view, 0)
    at = _HEADER.size
    sizes = [_SIZE.unpack_from(view, at + i * _SIZE.size)[0] for i in range(count)]
    at += count * _SIZE.size
    body = view[at : at + body_size]
    at += body_size
    buffers = []
    for size in sizes:
        buffers.append(view[at : at + size])
        at += size
    return pickle.loads(body, buffers=buffers)


class _Unpicklable:
    """Travels in place of an object that cannot: the others wait for it."""

    def __init__(self, error: BaseException) -> None:
        self.sender = topology.world().describe(topology.known().rank)
        self.why = f"{type(error).__name__}: {error}"


def _packed(obj: Any) -> Tuple[bytearray, Optional[Exception]]:
    """The message of an object, or of why there is none, with the error then."""
    try:
        return dumps(obj), None
    except Exception as error:
        return dumps(_Unpicklable(error)), error


def _unpacked(message: Any) -> Any:
    """The object of a message. Raises ValueError if its sender had none."""
    obj = loads(message)
    if isinstance(obj, _Unpicklable):
        raise ValueError(f"{obj.sender} could not send its object, it cannot be pickled: {obj.why}")
    return obj


def broadcast_bytes(data: Optional[bytearray], root_rank: int, name: str, process_set: int) -> bytearray:
    """The root's bytes on every rank of the set; other ranks pass None. Names end in .sz and .t.

    Raises:
        HorovodInternalError: they were altered on their way; names the root and its host.
    """
    sealed = Messages(name, process_set)
    head = bytearray(sealed.head(root_rank, data) if data is not None else HEAD_BYTES)
    _broadcast(head, f"{name}.sz", root_rank, process_set)
    payload = data if data is not None else bytearray(sealed.size_in(root_rank, head))
    if payload:
        _broadcast(payload, f"{name}.t", root_rank, process_set)
    sealed.exchanged()
    if data is None:
        sealed.check(root_rank, head, payload)
    return payload


def _broadcast(data: bytearray, name: str, root: int, process_set: int) -> None:
    memory = (ctypes.c_char * len(data)).from_buffer(data)
    at = ctypes.addressof(memory)
    request = engine.request(
        c.BROADCAST, name, c.UINT8, (len(data),), at, at, root=root, process_set=process_set
    )
    engine.run_released(request, keep=memory)


def allgather_bytes(data: bytearray, name: str, process_set: int) -> List[memoryview]:
    """Every rank's bytes, in the order of the set. Names end in .sz and .t.

    Raises:
        HorovodInternalError: a rank's bytes were altered on their way; names it and its host.
    """
    sealed = Messages(name, process_set)
    mine = bytearray(sealed.head(topology.known().rank, data))
    heads = memoryview(_gathered(mine, f"{name}.sz", process_set)).cast("B")
    everything = memoryview(_gathered(data, f"{name}.t", process_set)).cast("B")
    sealed.exchanged()
    parts, at = [], 0
    for number, sender in enumerate(ranks_of(process_set)):
        head = heads[number * HEAD_BYTES : (number + 1) * HEAD_BYTES]
        size = sealed.size_in(sender, head)
        parts.append(everything[at : at + size])
        sealed.check(sender, head, parts[-1])
        at += size
    return parts


def _gathered(data: bytearray, name: str, process_set: int) -> Any:
    memory = (ctypes.c_char * len(data)).from_buffer(data)
    request = engine.request(
        c.ALLGATHER, name, c.UINT8, (len(data),), ctypes.addressof(memory), process_set=process_set
    )
    handle = engine.run([request], keep=(memory,))
    try:
        return engine.take(handle, 0, 1).array()
    finally:
        engine.release(handle)


def broadcast_object(
    obj: Any = None,
    root_rank: int = 0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends an object from the root to all ranks of the set.

    Args:
        obj: the object; only the root's counts.
        root_rank: global rank of the sender.
        name: shown in errors and in the timeline; the same on all ranks.

    Returns:
        The root's object: the same object on the root, a copy elsewhere.

    Raises:
        ValueError: the root's object cannot be pickled; the root raises what pickle raised.
    """
    wire = names.wire_name("broadcast", _DEFAULT_NAME if name is None else name)
    is_root = topology.known().rank == root_rank
    message, error = _packed(obj) if is_root else (None, None)
    received = broadcast_bytes(message, root_rank, wire, process_set_id(process_set))
    if error is not None:
        raise error
    return obj if is_root else _unpacked(received)


def allgather_object(
    obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> List[Any]:
    """Every rank's object, in the order of the set.

    Args:
        obj: this rank's object; types and sizes may differ.
        name: shown in errors and in the timeline; the same on all ranks.

    Raises:
        ValueError: another rank's object cannot be pickled; that rank raises what pickle raised.
    """
    wire = names.wire_name("allgather", _DEFAULT_NAME if name is None else name)
    message, error = _packed(obj)
    parts = allgather_bytes(message, wire, process_set_id(process_set))
    if error is not None:
        raise error
    return [_unpacked(part) for part in parts]
