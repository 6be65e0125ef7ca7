# SPDX-License-Identifier: Apache-2.0
"""Opens the authenticated sockets between ranks.

The side that accepts runs an `Acceptor`: one thread that takes connections, lets each prove the job's secret
and say which link it is, and drops all others. It never waits for a single peer, so a port scan, garbage or a
half-open connection costs a log line and nothing else. The side that dials proves the secret first, then
sends

    tag (48 bytes) = kind, process set, hop, from rank, to rank (5 x int32, big endian), padding
                     followed by its HMAC under the connection's key (32 bytes)

Nothing is parsed before the proof, and every read has a size fixed in advance.
"""

from __future__ import annotations

import hmac
import logging
import selectors
import socket
import struct
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from horovod.rendezvous import auth

log = logging.getLogger("horovod")

PURPOSE = b"link"
LISTEN_BACKLOG = 1024
MAX_STRANGERS = 512  # unproven connections held at a time; beyond it the oldest is dropped

_TAG = struct.Struct(">5i28x")
_MAC_BYTES = 32


class Tag(NamedTuple):
    """Which link a connection is, seen from the side that dialled."""

    kind: int
    process_set: int
    hop: int
    from_rank: int
    to_rank: int

    def signed(self, key: bytes) -> bytes:
        """The bytes that announce this link on a connection with that session key."""
        body = _TAG.pack(*self)
        return body + hmac.digest(key, b"tag" + body, "sha256")

    @staticmethod
    def verified(data: bytes, key: bytes) -> Tag:
        """The tag in the announcement, or AuthenticationError."""
        body, mac = data[: _TAG.size], data[_TAG.size :]
        if not hmac.compare_digest(mac, hmac.digest(key, b"tag" + body, "sha256")):
            raise auth.AuthenticationError("the link's announcement was altered on its way")
        return Tag(*_TAG.unpack(body))


TAG_BYTES = _TAG.size + _MAC_BYTES


def link_key(session_key: bytes) -> bytes:
    """What the engine seals a link with; the session key itself has signed the announcement."""
    return hmac.digest(session_key, b"link", "sha256")


def tune(sock: socket.socket) -> None:
    """Small messages leave at once, and a peer that vanished without a word is noticed."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", 5),
        ("TCP_KEEPINTVL", 2),
        ("TCP_KEEPCNT", 5),
        ("TCP_USER_TIMEOUT", 15_000),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def listen(address: str) -> socket.socket:
    """A listening TCP socket on a free port of the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.bind((address, 0))
        sock.listen(LISTEN_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def dial(
    address: str,
    port: int,
    secret: bytes,
    tag: Tag,
    deadline: float,
    keys: Optional[Dict[Tag, bytes]] = None,
) -> socket.socket:
    """Connects to another rank's listener, proves the secret, announces the link; its key goes to `keys`."""
    sock = socket.create_connection((address, port), timeout=max(deadline - time.monotonic(), 0.1))
    return announce(sock, secret, tag, deadline, keys)


def announce(
    sock: socket.socket, secret: bytes, tag: Tag, deadline: float, keys: Optional[Dict[Tag, bytes]] = None
) -> socket.socket:
    """Proves the secret on a connected socket and announces the link; closes the socket on failure."""
    try:
        tune(sock)
        key = auth.connect(sock, secret, max(deadline - time.monotonic(), 0.1), PURPOSE)
        if keys is not None:
            keys[tag] = link_key(key)
        sock.sendall(tag.signed(key))
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


class _Stranger:
    """A connection on its way to being trusted: what it must send next, and who then judges it."""

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self.sock = sock
        self.peer = peer
        self.deadline = time.monotonic() + auth.HANDSHAKE_SECONDS
        self.data = bytearray()
        self.wanted = auth.HELLO_BYTES
        self.step: Callable[[bytes], Optional[Tag]] = lambda data: None


class Acceptor:
    """Collects the expected links from a listening socket, in a thread of its own.

    Args:
        listener: closed when the acceptor is closed.
        secret: the job's.
        expected: the links to wait for; anything else, even if authenticated, is refused.
    """

    def __init__(self, listener: socket.socket, secret: bytes, expected: Set[Tag]) -> None:
        self._secret = secret
        self._listener = listener
        self._expected = set(expected)
        # Before expect(), whoever proves the secret may be early rather than wrong.
        self._told = bool(expected)
        self._links: Dict[Tag, socket.socket] = {}
        self.keys: Dict[Tag, bytes] = {}  # of the links that came
        self._strangers: List[_Stranger] = []
        self._lock = threading.Lock()
        self._complete = threading.Event()
        self._waker, self._wakened = socket.socketpair()
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wakened, selectors.EVENT_READ)
        self._closing = False
        self._check_complete()
        self._thread = threading.Thread(target=self._serve, name="horovod-accept", daemon=True)
        self._thread.start()

    def expect(self, expected: Set[Tag]) -> None:
        """Replaces the links to wait for (they are known only once all ranks are)."""
        with self._lock:
            self._expected = set(expected)
            self._told = True
            for tag in [t for t in self._links if t not in self._expected]:
                self._links.pop(tag).close()
            self._check_complete()

    def wait(self, timeout: float) -> bool:
        """Whether all expected links are there, waiting up to `timeout` seconds."""
        return self._complete.wait(timeout)

    def missing(self) -> List[Tag]:
        """Expected links that have not come yet."""
        with self._lock:
            return sorted(self._expected - set(self._links))

    def take(self) -> Dict[Tag, socket.socket]:
        """The collected links; the caller owns them from now on."""
        with self._lock:
            links, self._links = self._links, {}
        return links

    def close(self) -> None:
        """Stops listening and closes everything not taken. Idempotent."""
        if not self._closing:
            self._closing = True
            self._waker.send(b"x")
            self._thread.join()
            for sock in (self._waker, self._wakened, *self.take().values()):
                sock.close()

    # ----------------------------------------------------------------------------- the thread

    def _serve(self) -> None:
        try:
            while not self._closing:
                for key, _ in self._selector.select(timeout=1.0):
                    if key.fileobj is self._listener:
                        self._greet()
                    elif isinstance(key.data, _Stranger):
                        self._advance(key.data)
                now = time.monotonic()
                for late in [s for s in self._strangers if s.deadline < now]:
                    self._refuse(late, "it did not prove the job's secret in time")
        finally:
            for stranger in list(self._strangers):
                self._forget(stranger)
                stranger.sock.close()
            self._selector.close()
            self._listener.close()

    def _greet(self) -> None:
        try:
            sock, address = self._listener.accept()
        except OSError:
            time.sleep(0.01)  # gone again, or no descriptors left: the rest must go on, without spinning
            return
        sock.setblocking(False)
        peer = (
            f"{address[0]}:{address[1]}"
            if isinstance(address, tuple) and len(address) > 1
            else "a local process"
        )
        stranger = _Stranger(sock, peer)
        stranger.step = lambda data: self._on_hello(stranger, data)
        self._strangers.append(stranger)
        self._selector.register(sock, selectors.EVENT_READ, stranger)
        if len(self._strangers) > MAX_STRANGERS:
            self._refuse(self._strangers[0], "too many connections that prove nothing")

    def _advance(self, stranger: _Stranger) -> None:
        try:
            part = stranger.sock.recv(stranger.wanted - len(stranger.data))
            if not part:
                return self._refuse(stranger, "it hung up during authentication")
            stranger.data += part
            if len(stranger.data) == stranger.wanted:
                data = bytes(stranger.data)
                stranger.data.clear()
                tag = stranger.step(data)
                if tag is not None:
                    self._admit(stranger, tag)
        except BlockingIOError:
            pass
        except OSError as error:  # AuthenticationError is one
            self._refuse(stranger, str(error))
        return None

    def _on_hello(self, stranger: _Stranger, theirs: bytes) -> None:
        auth.check_hello(theirs)
        mine = auth.hello()
        stranger.sock.send(mine)
        stranger.wanted = auth.PROOF_BYTES
        stranger.step = lambda data: self._on_proof(stranger, data, theirs, mine)

    def _on_proof(self, stranger: _Stranger, proof: bytes, theirs: bytes, mine: bytes) -> None:
        auth.check_proof(auth.client_proof(self._secret, theirs, mine, PURPOSE), proof)
        stranger.sock.send(auth.server_proof(self._secret, theirs, mine, PURPOSE))
        key = auth.session_key(self._secret, theirs, mine)
        stranger.wanted = TAG_BYTES
        stranger.step = lambda data: self._on_tag(data, key)

    def _on_tag(self, data: bytes, key: bytes) -> Tag:
        tag = Tag.verified(data, key)
        self.keys.setdefault(tag, link_key(key))  # a second one of the same name is refused
        return tag

    def _admit(self, stranger: _Stranger, tag: Tag) -> None:
        with self._lock:
            if (self._told and tag not in self._expected) or tag in self._links:
                return self._refuse(stranger, f"it announced a link nobody waits for: {tag}")
            self._forget(stranger)
            stranger.sock.setblocking(True)
            tune(stranger.sock)
            self._links[tag] = stranger.sock
            self._check_complete()
        return None

    def _refuse(self, stranger: _Stranger, why: str) -> None:
        self._forget(stranger)
        stranger.sock.close()
        log.warning("refused a connection from %s: %s", stranger.peer, why)

    def _forget(self, stranger: _Stranger) -> None:
        self._strangers.remove(stranger)
        self._selector.unregister(stranger.sock)

    def _check_complete(self) -> None:
        if self._expected <= set(self._links):
            self._complete.set()
        else:
            self._complete.clear()


def addresses_of(sock: socket.socket) -> Tuple[str, int]:
    """Address and port a listener is bound to."""
    name = sock.getsockname()
    return str(name[0]), int(name[1])
