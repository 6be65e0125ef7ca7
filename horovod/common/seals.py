# SPDX-License-Identifier: Apache-2.0
"""Seals for pickled objects: nobody between two hosts can alter one, replace it, or play an old one again.

Every message has a head, which travels before it:

    head (72 bytes) = size (8 bytes, little endian) | HMAC of it | HMAC of the message

Both HMACs (SHA-256) are under a key that only ranks of this job can derive, and cover its generation, who
sends, in which process set, under which name, and which message of that name it is, counted from the start.
The size's own is checked before memory is taken for the message. In a world on one host nothing leaves the
shared memory, and the HMACs are left zero.
"""

from __future__ import annotations

import hmac
import struct
from typing import Any, Dict, Tuple

from horovod.common import topology
from horovod.common.exceptions import HorovodInternalError
from horovod.rendezvous.auth import derived_key

_SIZE = struct.Struct("<Q")
_MAC_BYTES = 32
HEAD_BYTES = _SIZE.size + 2 * _MAC_BYTES
_CONTEXT = struct.Struct("<5Q")  # generation, registration of the set, number of the message, set, sender

# A set's number may be given out again; which registration it is from tells the old set from the new one.
_registrations = 0
_registration_of: Dict[int, int] = {}
_counts: Dict[Tuple[int, str], int] = {}  # registration and name -> messages so far


def reset() -> None:
    """A new world: everything is counted from the start, on all ranks alike."""
    global _registrations
    _registrations = 0
    _registration_of.clear()
    _counts.clear()


def set_registered(process_set: int) -> None:
    """A process set was registered, on all ranks alike."""
    global _registrations
    _registrations += 1
    _registration_of[process_set] = _registrations


class Messages:
    """The messages of one collective: each sender's can be sealed, and checked."""

    def __init__(self, name: str, process_set: int) -> None:
        self._world = topology.world()
        self._name, self._set = name, process_set
        self._registration = _registration_of.get(process_set, 0)
        self._number = _counts.get((self._registration, name), 0)
        sealed = self._world.n_hosts > 1
        self._key = derived_key(self._world.secret, b"objects") if sealed else None

    def exchanged(self) -> None:
        """All ranks have them: the next of this name has another number."""
        _counts[(self._registration, self._name)] = self._number + 1

    def head(self, sender: int, data: Any) -> bytes:
        """The head of the message that this rank sends."""
        size = _SIZE.pack(len(data))
        return size + self._mac(sender, b"size", size) + self._mac(sender, b"data", data)

    def size_in(self, sender: int, head: Any) -> int:
        """The size of a sender's message."""
        size = bytes(head[: _SIZE.size])
        self._compare(sender, head[_SIZE.size : -_MAC_BYTES], self._mac(sender, b"size", size))
        return int(_SIZE.unpack(size)[0])

    def check(self, sender: int, head: Any, data: Any) -> None:
        """Raises HorovodInternalError unless the sender sent exactly this, here and now."""
        self._compare(sender, head[-_MAC_BYTES:], self._mac(sender, b"data", data))

    def _compare(self, sender: int, got: Any, expected: bytes) -> None:
        if not hmac.compare_digest(bytes(got), expected):
            raise HorovodInternalError(
                f"the object '{self._name}' from {self._world.describe(sender)} was altered on its way to "
                f"{self._world.describe(self._world.rank)}, and was not unpickled. Somebody on the network "
                "between them interferes with this job"
            )

    def _mac(self, sender: int, what: bytes, data: Any) -> bytes:
        if self._key is None:
            return bytes(_MAC_BYTES)
        name = self._name.encode("utf-8", "surrogatepass")
        context = (self._world.generation, self._registration, self._number, self._set, sender)
        digest = hmac.new(self._key, what + _CONTEXT.pack(*context) + _SIZE.pack(len(name)) + name, "sha256")
        digest.update(data)
        return digest.digest()
