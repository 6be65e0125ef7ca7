# SPDX-License-Identifier: Apache-2.0
"""How the launcher and an agent on another host exchange messages: over two pipes (ssh's), or over a socket.

Both ends use the same class. A channel carries whole messages in order; losing it is an EOFError or OSError.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from typing import Any, Dict, Optional, Protocol

from horovod.rendezvous import store_wire as wire
from horovod.rendezvous.errors import WireError

_LENGTH = struct.Struct(">I")
_CHUNK = 1 << 16
# Output comes in pieces of 64 KiB, a worker's environment is smaller than this too (Linux allows 2 MiB).
_MAX_MESSAGE = 64 << 20


class Channel(Protocol):
    """One end."""

    is_private: bool  # nobody on the way can read it

    def send(self, message: bytes) -> None:
        """Sends a message; waits while the other end does not read."""

    def receive(self, timeout: Optional[float] = None) -> Optional[bytes]:
        """The next message; None if there is none within the timeout. Raises EOFError at the end."""

    def close(self) -> None:
        """Hangs up."""


class AgentChannel(Channel, Protocol):
    """The launcher's end of the way to an agent."""

    def open(self) -> Dict[str, Any]:
        """Waits for the agent and returns what it says about itself. Raises ChannelError otherwise."""

    def why_ended(self) -> str:
        """Why the channel ended, in words, with what to do about it."""


class ChannelError(ConnectionError):
    """No agent answers; the text says why, and what to do about it."""


class PipeChannel:
    """A channel over two descriptors. Not signed: who can write to a pipe of this process may do anything."""

    is_private = True

    def __init__(self, read_end: int, write_end: int) -> None:
        self._read_end, self._write_end = read_end, write_end
        self._lock = threading.Lock()
        self._data = bytearray()

    def send(self, message: bytes) -> None:
        """Sends a message."""
        with self._lock:
            left = memoryview(_LENGTH.pack(len(message)) + message)
            while left:
                left = left[os.write(self._write_end, left) :]

    def receive(self, timeout: Optional[float] = None) -> Optional[bytes]:
        """The next message."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            message = self._complete()
            if message is not None:
                return message
            if deadline is not None and not _readable(self._read_end, deadline):
                return None
            data = os.read(self._read_end, _CHUNK)
            if not data:
                raise EOFError("the other end hung up")
            self._data += data

    def skip_past(self, marker: bytes, limit: int) -> None:
        """Drops everything up to a marker: login scripts may print before our program starts."""
        seen = b""
        while marker not in seen:
            if len(seen) > limit:
                raise EOFError("no marker")
            data = os.read(self._read_end, _CHUNK)
            if not data:
                raise EOFError("the other end hung up")
            seen += data
        self._data += seen.split(marker, 1)[1]

    def close(self) -> None:
        """The owner of the descriptors closes them."""

    def _complete(self) -> Optional[bytes]:
        if len(self._data) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._data)
        if length > _MAX_MESSAGE:
            raise EOFError(f"a message of {length} bytes: this is not an agent of ours")
        end = _LENGTH.size + length
        if len(self._data) < end:
            return None
        message = bytes(self._data[_LENGTH.size : end])
        del self._data[:end]
        return message


class SocketChannel:
    """A channel over a socket whose two ends have proved the job's secret to each other.

    Every message is signed with the connection's key: it can be read on its way, but neither altered nor
    repeated, dropped or put elsewhere.
    """

    is_private = False

    def __init__(self, sock: socket.socket, outgoing: wire.Signer, incoming: wire.Signer) -> None:
        self._sock = sock
        self._lock = threading.Lock()
        self._out, self._in = outgoing, incoming

    def send(self, message: bytes) -> None:
        """Signs and sends a message."""
        with self._lock:
            self._sock.sendall(b"".join(self._out.frame(message)))

    def receive(self, timeout: Optional[float] = None) -> Optional[bytes]:
        """The next message, its signature checked."""
        if timeout is not None and not _readable(self._sock.fileno(), time.monotonic() + timeout):
            return None
        message = self._exactly(message_length(self._exactly(wire.LENGTH.size)))
        self._in.check(message, self._exactly(wire.MAC_BYTES))
        return message

    def close(self) -> None:
        """Hangs up; a receive() under way in another thread ends."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._sock.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._sock.recv(count - len(data))
            if not part:
                raise EOFError("the other end hung up")
            data += part
        return bytes(data)


def message_length(header: bytes) -> int:
    """The length of a signed message, refused before any memory is taken for it."""
    length = wire.frame_length(header)
    if length > _MAX_MESSAGE:
        raise WireError(f"a message of {length} bytes")
    return length


def _readable(descriptor: int, deadline: float) -> bool:
    poll = select.poll()  # unlike select(), takes descriptors above 1023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(deadline - time.monotonic(), 0.0) * 1000))
