# SPDX-License-Identifier: Apache-2.0
"""Opens the authenticated sockets between ranks.

The side that dials proves the secret (dialling.py), then announces which link this is:

    tag (48 bytes) = kind, process set, hop, from rank, to rank, generation (6 x int32, big endian), padding
                     followed by its HMAC under the connection's key (32 bytes)

The side that accepts (acceptor.py) collects the links it expects and refuses all others: somebody who proved
the secret may still be a rank of an earlier generation that has not heard of its end.
"""

from __future__ import annotations

import hmac
import socket
import struct
import threading
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from horovod.rendezvous import auth
from horovod.rendezvous.acceptor import Acceptor
from horovod.rendezvous.connection import Connection, Conversation
from horovod.rendezvous.dialling import dial
from horovod.rendezvous.errors import AuthenticationError, OutOfDescriptors
from horovod.rendezvous.network import address_of

PURPOSE = b"link"
# How often somebody who waits for others looks whether the job has failed meanwhile.
CHECK_SECONDS = 0.2
_TAG = struct.Struct(">6i24x")
_MAC_BYTES = 32


class Tag(NamedTuple):
    """Which link a connection is, seen from the side that dialled."""

    kind: int
    process_set: int
    hop: int
    from_rank: int
    to_rank: int
    generation: int

    def signed(self, key: bytes) -> bytes:
        """The bytes that announce this link on a connection with that session key."""
        body = _TAG.pack(*self)
        return body + hmac.digest(key, b"tag" + body, "sha256")

    @staticmethod
    def verified(data: bytes, key: bytes) -> Tag:
        """The tag in the announcement, or AuthenticationError."""
        body, mac = data[: _TAG.size], data[_TAG.size :]
        if not hmac.compare_digest(mac, hmac.digest(key, b"tag" + body, "sha256")):
            raise AuthenticationError("the link's announcement was altered on its way")
        return Tag(*_TAG.unpack(body))


TAG_BYTES = _TAG.size + _MAC_BYTES


class OpenLink(NamedTuple):
    """An open link: its socket, and the key that its two ends alone know."""

    sock: socket.socket
    key: bytes


def open_link(
    address: Tuple[str, int],
    secret: bytes,
    tag: Tag,
    deadline: float,
    check: Callable[[], None] = lambda: None,
) -> OpenLink:
    """Connects to another rank's listener and announces the link."""
    sock, key = dial(address, secret, PURPOSE, deadline, waits=False, check=check)
    return announce(sock, key, tag)


def announce(sock: socket.socket, key: bytes, tag: Tag) -> OpenLink:
    """Says on a proven connection which link it is; closes the socket on failure."""
    try:
        sock.sendall(tag.signed(key))
    except BaseException:
        sock.close()
        raise
    return OpenLink(sock, auth.derived_key(key, b"link"))


class LinkAcceptor:
    """Collects the expected links from a listening socket.

    Attributes:
        address: where it listens, as (address, port).

    Args:
        listener: closed when this is closed.
        secret: the job's.
        generation: the life of the world that these links belong to.
        expected: the links to wait for. None: not known yet; who proves the secret may be early.
    """

    def __init__(
        self, listener: socket.socket, secret: bytes, generation: int, expected: Optional[Iterable[Tag]]
    ) -> None:
        self.address = address_of(listener)
        self._generation = generation
        self._expected: Optional[Set[Tag]] = None if expected is None else set(expected)
        self._links: Dict[Tag, OpenLink] = {}
        self._lock = threading.Lock()
        self._complete = threading.Event()
        self._check_complete()
        self._acceptor = Acceptor([listener], secret, PURPOSE, self._admit)

    def expect(self, expected: Iterable[Tag]) -> None:
        """Says which links to wait for (they are known only once all ranks are)."""
        with self._lock:
            self._expected = set(expected)
            for tag in [tag for tag in self._links if tag not in self._expected]:
                self._links.pop(tag).sock.close()
            self._check_complete()

    def wait(self, timeout: float) -> bool:
        """Whether all expected links are there, waiting up to `timeout` seconds.

        Raises:
            OutOfDescriptors: they cannot come, because this process may open no more sockets.
        """
        complete = self._complete.wait(timeout)
        if not complete and self._acceptor.exhausted:
            raise OutOfDescriptors()
        return complete

    def missing(self) -> List[Tag]:
        """Expected links that have not come yet."""
        with self._lock:
            return sorted((self._expected or set()) - set(self._links))

    def take(self) -> Dict[Tag, OpenLink]:
        """The collected links; the caller owns them from now on."""
        with self._lock:
            links, self._links = self._links, {}
        return links

    def close(self) -> None:
        """Stops listening and closes everything not taken. Idempotent."""
        self._acceptor.close()
        for link in self.take().values():
            link.sock.close()

    def _admit(self, connection: Connection) -> Conversation:
        tag = Tag.verified((yield TAG_BYTES), connection.key)
        with self._lock:
            reason = self._unwanted(tag)
            if reason:
                raise AuthenticationError(reason)
            self._links[tag] = OpenLink(connection.release(), auth.derived_key(connection.key, b"link"))
            self._check_complete()

    def _unwanted(self, tag: Tag) -> str:
        if tag.generation != self._generation:
            return (
                f"it is rank {tag.from_rank} of generation {tag.generation}; the job is at {self._generation}"
            )
        if (self._expected is not None and tag not in self._expected) or tag in self._links:
            return f"it announced a link nobody waits for: {tag}"
        return ""

    def _check_complete(self) -> None:
        if self._expected is not None and self._expected <= set(self._links):
            self._complete.set()
        else:
            self._complete.clear()
