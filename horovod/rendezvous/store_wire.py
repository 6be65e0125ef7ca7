# SPDX-License-Identifier: Apache-2.0
"""What travels between a StoreClient and a StoreServer once both have proved the secret.

    frame   = length (8 bytes, big endian) | payload | HMAC-SHA-256 of (direction, counter, payload)
    request = verb (1 byte) | key length (2 bytes) | key | value
    reply   = verdict (1 byte) | value or text

    HELLO       who is calling, as JSON: host, rank, process, version, time
    JOIN        a Claim as JSON and seconds to wait -> a Seat as JSON: the place in a generation. What follows
                on this connection belongs to that generation; before, to the job as a whole.
    SET, GET    a value of the board; GET waits for it, up to that many seconds
    FAIL        why nobody need wait any more
    DONE        this end may hang up from now on

Fixed binary only: nothing here can execute anything. The HMAC uses the key of this one connection and a
counter, so frames can be neither forged nor replayed nor reordered by somebody on the path.
"""

from __future__ import annotations

import hmac
import struct
from typing import Sequence, Tuple

from horovod.rendezvous.errors import WireError

LENGTH = struct.Struct(">Q")
COUNTER = struct.Struct(">Q")
KEY_LENGTH = struct.Struct(">H")
SECONDS = struct.Struct(">d")
MAX_SECONDS = 1e6  # the longest anybody may wait
MAC_BYTES = 32
_SMALL = 1 << 16
# A result of horovod.run may be a whole model; above this it belongs into a file.
MAX_FRAME = 8 << 30

PURPOSE = b"store"
HELLO, JOIN, SET, GET, FAIL, DONE = 1, 2, 3, 4, 5, 6
OK, FAILED, TIMED_OUT, SUPERSEDED, DISMISSED = 0, 1, 2, 3, 4

TO_SERVER, TO_CLIENT = b"C", b"S"


class Signer:
    """Signs (or checks) the frames of one direction of one connection."""

    def __init__(self, key: bytes, direction: bytes) -> None:
        self._key = key
        self._direction = direction
        self._count = 0

    def frame(self, payload: bytes) -> Sequence[bytes]:
        """What to send for a payload: one packet if it is small, parts that need no copy if it is large."""
        parts = (LENGTH.pack(len(payload)), payload, self._mac(payload))
        return [b"".join(parts)] if len(payload) < _SMALL else parts

    def check(self, payload: bytes, mac: bytes) -> None:
        """Raises unless the peer signed exactly this frame at exactly this place."""
        if not hmac.compare_digest(self._mac(payload), mac):
            raise WireError("a message was altered on its way")

    def _mac(self, payload: bytes) -> bytes:
        digest = hmac.new(self._key, self._direction + COUNTER.pack(self._count), "sha256")
        digest.update(payload)
        self._count += 1
        return digest.digest()


def frame_length(header: bytes) -> int:
    """The payload length, refused before any memory is taken for it."""
    (length,) = LENGTH.unpack(header)
    if length > MAX_FRAME:
        raise WireError(f"a message of {length} bytes is above the limit of {MAX_FRAME}")
    return int(length)


def seconds(value: float) -> float:
    """A time limit that a peer sent; neither negative nor so long that a clock overflows."""
    if not 0 <= value <= MAX_SECONDS:
        raise WireError(f"a wait of {value} s makes no sense")
    return float(value)


def pack_request(verb: int, key: str, value: bytes) -> bytes:
    """One request payload."""
    name = key.encode()
    return bytes([verb]) + KEY_LENGTH.pack(len(name)) + name + value


def unpack_request(payload: bytes) -> Tuple[int, str, bytes]:
    """The verb, key and value of a request payload."""
    try:
        verb = payload[0]
        (size,) = KEY_LENGTH.unpack_from(payload, 1)
        key = payload[3 : 3 + size].decode()
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise WireError("malformed request") from error
    return verb, key, payload[3 + size :]
