# SPDX-License-Identifier: Apache-2.0
"""What travels between a ComputeClient and a ComputeService once both have proved the key.

The frames are those of the job's store: a length, JSON, and a signature by the key of this one connection.

    request = {"do": "register_dispatcher", "args": [0, "grpc://10.0.0.1:4711"], "seconds": 0}
    reply   = {"value": ...} or {"error": "IndexError", "text": "..."}
"""

from __future__ import annotations

import json
from typing import Any, Dict, Sequence

from horovod.common.exceptions import TimeoutException
from horovod.rendezvous import store_wire
from horovod.rendezvous.errors import WireError

PURPOSE = b"compute"
_MAX_FRAME = 1 << 16
# Exceptions that cross the wire; anything else ends the connection.
ERRORS = {error.__name__: error for error in (IndexError, ValueError, TimeoutException)}


def frame_length(header: bytes) -> int:
    """The length of what follows, refused before any memory is taken for it."""
    length = store_wire.frame_length(header)
    if length > _MAX_FRAME:
        raise WireError(f"a message of {length} bytes is above the limit of {_MAX_FRAME}")
    return length


def pack(message: Dict[str, Any], signer: store_wire.Signer) -> Sequence[bytes]:
    """What to send for a message."""
    return signer.frame(json.dumps(message).encode())


def unpack(payload: bytes, mac: bytes, signer: store_wire.Signer) -> Dict[str, Any]:
    """The message in a frame, if the peer signed it."""
    signer.check(payload, mac)
    try:
        message = json.loads(payload)
    except ValueError as error:
        raise WireError(f"malformed message: {error}") from error
    if not isinstance(message, dict):
        raise WireError("malformed message: not an object")
    return message
