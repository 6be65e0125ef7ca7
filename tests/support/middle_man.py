# SPDX-License-Identifier: Apache-2.0
"""A man in the middle: ranks connect to each other through him; he passes the handshakes on, then does harm.

    with MiddleMan() as relay:
        with Processes(relay.script + "hvd.init() ...", 2, hosts=["a", "b"]) as ranks:
            relay.attack(LINK_CONTROL, flip)      # the next bytes of a control link
            relay.done.wait()

`relay.script` is what makes a rank fall for him: its connections, but for those to the store, go to him, as
if he had redirected the network between the hosts.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import Callable, Dict, List, Optional, Set

from horovod.rendezvous import auth
from horovod.rendezvous.links import TAG_BYTES

_REDIRECT = """
import socket
_connect = socket.socket.connect
def _redirected(self, address):
    store = int(os.environ.get("HOROVOD_GLOO_RENDEZVOUS_PORT", "0"))
    if self.type & socket.SOCK_STREAM and self.family == socket.AF_INET and address[1] not in (0, store):
        _connect(self, ("127.0.0.1", {port}))
        self.sendall(("%s %d" % address[:2]).ljust(64).encode())
    else:
        _connect(self, address)
socket.socket.connect = _redirected
"""

Harm = Callable[[bytes], bytes]


def flip(data: bytes) -> bytes:
    """One bit in the middle."""
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :]


def repeat(data: bytes) -> bytes:
    """The same again."""
    return data + data


class MiddleMan:
    """Listens on loopback from entering the context until leaving it.

    Attributes:
        script: to be run by the ranks before `hvd.init()`.
        done: set when the harm was done.
        overheard: what passed on links of each kind after their handshake, in both directions.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.script = _REDIRECT.format(port=self._listener.getsockname()[1])
        self.done = threading.Event()
        self.overheard: Dict[int, bytearray] = {}
        self._harm: Optional[Harm] = None
        self._kind = -1
        self._between: Optional[Set[int]] = None
        self._lock = threading.Lock()
        self._sockets: List[socket.socket] = [self._listener]
        self._threads: List[threading.Thread] = []
        self._run(self._serve)

    def attack(self, kind: int, harm: Harm, between: Optional[Set[int]] = None) -> None:
        """Does harm to the next bytes on a link of that kind that it changes, once.

        between: only on links of these two ranks, e.g. {0, 1}.
        """
        with self._lock:
            self.done.clear()
            self._kind, self._harm, self._between = kind, harm, between

    def __enter__(self) -> MiddleMan:
        return self

    def __exit__(self, *exc: object) -> None:
        for sock in self._sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
        for thread in self._threads:
            thread.join(10)

    def _run(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(near)
            self._run(self._introduce, near)

    def _introduce(self, near: socket.socket) -> None:
        """Passes the handshake on, both ways, and reads from the announcement which link it is."""
        address, port = _exactly(near, 64).decode().split()
        far = socket.create_connection((address, int(port)))
        self._sockets.append(far)
        for sock in (near, far):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far.sendall(_exactly(near, auth.HELLO_BYTES))
        near.sendall(_exactly(far, auth.HELLO_BYTES))
        far.sendall(_exactly(near, auth.PROOF_BYTES))
        near.sendall(_exactly(far, auth.PROOF_BYTES))
        announcement = _exactly(near, TAG_BYTES)
        far.sendall(announcement)
        kind, _, _, dialler, other = struct.unpack_from(">5i", announcement)
        kind = {3: 2}.get(kind, kind)  # data in or out, the same wire
        self._run(self._pump, near, far, kind, {dialler, other})
        self._run(self._pump, far, near, kind, {dialler, other})

    def _pump(self, source: socket.socket, target: socket.socket, kind: int, ends: Set[int]) -> None:
        try:
            while True:
                data = source.recv(1 << 16)
                if not data:
                    target.shutdown(socket.SHUT_WR)
                    return
                with self._lock:
                    self.overheard.setdefault(kind, bytearray()).extend(data[: 1 << 16])
                    wanted = kind == self._kind and self._between in (None, ends)
                    if wanted and self._harm is not None:
                        altered = self._harm(data)
                        if altered != data:
                            data, self._harm = altered, None
                            self.done.set()
                target.sendall(data)
        except OSError:
            pass


def _exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            raise ConnectionError("hung up")
        data += part
    return data
