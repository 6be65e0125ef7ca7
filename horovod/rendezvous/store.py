# SPDX-License-Identifier: Apache-2.0
"""The job's notice board, seen by a worker: small named values, shared by all ranks.

Workers use it to find each other (addresses), and `horovod.run` to hand out the function and collect the
results. The board itself is horovod.rendezvous.store_server.StoreServer, usually inside the launcher.

    with StoreClient("10.0.0.1", 5021, secret, rank=1, size=4, host="node7") as store:
        store.set("address/1", b"10.0.0.2:4021")
        store.get("address/0", timeout=30)      # waits until rank 0 has set it

A rank that disappears before it called done() fails everybody's get() with one message that names it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
import time
from typing import Optional

from horovod.rendezvous import auth
from horovod.rendezvous import store_wire as wire
from horovod.version import __version__

_TIMEOUT = struct.Struct(">d")
# The server answers a timed-out get itself; only a dead or cut-off server is silent for longer than this.
_ANSWER_GRACE = 20.0


class StoreError(RuntimeError):
    """The job failed while its ranks were finding each other; the text says who and why."""


class StoreTimeout(StoreError):
    """Nobody set the value in time; the text says which ranks are missing."""


class StoreClient:
    """A connection to the job's store. Safe to share between threads (one request at a time)."""

    def __init__(
        self,
        address: str,
        port: int,
        secret: bytes,
        *,
        rank: int = -1,
        size: int = -1,
        host: str = "",
        timeout: float = 30.0,
    ) -> None:
        self.address, self.port = address, port
        self.scope = ""  # put before every key: several worlds may share one board
        self.secret = secret
        self._who = {"rank": rank, "size": size, "host": host or socket.gethostname()}
        self._lock = threading.Lock()
        self._sock: Optional[socket.socket] = None
        self._open(timeout)

    def set(self, key: str, value: bytes) -> None:
        """Puts a value on the board (replacing an earlier one)."""
        self._ask(wire.SET, self.scope + key, value)

    def get(self, key: str, timeout: float = 30.0) -> bytes:
        """The value of a key; waits until somebody sets it, the job fails or the time is up."""
        return self._ask(wire.GET, self.scope + key, _TIMEOUT.pack(timeout), wait=timeout)

    def fail(self, reason: str) -> None:
        """Makes every present and future get() of every rank raise StoreError(reason)."""
        if self._lock.acquire(timeout=0.2):
            self._lock.release()
            self._ask(wire.FAIL, "", reason.encode())
        else:  # another thread waits in get(): it shall be woken, not waited for
            with StoreClient(self.address, self.port, self.secret, host=str(self._who["host"])) as other:
                other._ask(wire.FAIL, "", reason.encode())

    def done(self) -> None:
        """Says that this rank may disconnect from now on without failing the others."""
        try:
            self._ask(wire.DONE, "", b"")
        except StoreError:
            pass  # the store's own end: it may go when it has answered everything that was asked of it

    @property
    def local_address(self) -> str:
        """This end's address on the route to the store: the one to tell peers on other hosts."""
        assert self._sock is not None
        return str(self._sock.getsockname()[0])

    def close(self) -> None:
        """Hangs up. Without done() before, the others are told that this rank is gone."""
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    def __enter__(self) -> StoreClient:
        return self

    def __exit__(self, kind: object, value: object, traceback: object) -> None:
        if kind is None and self._sock is not None:
            self.done()
        self.close()

    # ------------------------------------------------------------------------------------- private

    def _open(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self._sock = _dial(self.address, self.port, deadline, timeout)
        try:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            key = auth.connect(self._sock, self.secret, max(deadline - time.monotonic(), 5.0))
        except auth.AuthenticationError as error:
            self.close()
            raise StoreError(f"cannot join the job at {self.address}:{self.port}: {error}") from None
        except OSError as error:
            self.close()
            raise StoreError(f"lost the connection to {self.address}:{self.port}: {error}") from None
        self._out = wire.Signer(key, wire.TO_SERVER)
        self._in = wire.Signer(key, wire.TO_CLIENT)
        # The Python hash seed and paths stay private; these few facts let the server name what is wrong.
        facts = dict(self._who, pid=os.getpid(), version=__version__, time=time.time())
        try:
            self._ask(wire.HELLO, "", json.dumps(facts).encode())
        except StoreError:
            self.close()
            raise

    def _ask(self, verb: int, key: str, value: bytes, wait: float = 0.0) -> bytes:
        with self._lock:
            if self._sock is None:
                raise StoreError("this connection to the job's store is closed")
            self._sock.settimeout(wait + _ANSWER_GRACE)
            try:
                self._sock.sendall(self._out.frame(wire.pack_request(verb, key, value)))
                reply = self._receive()
            except OSError as error:
                self.close()
                raise StoreError(
                    f"lost the connection to the job's store at {self.address}:{self.port} ({error}); "
                    "the launcher or rank 0 has probably ended: look at the first error above"
                ) from error
        verdict, body = reply[0], reply[1:]
        if verdict == wire.OK:
            return body
        text = body.decode(errors="replace")
        raise StoreTimeout(text) if verdict == wire.TIMED_OUT else StoreError(text)

    def _receive(self) -> bytes:
        payload = self._read(wire.frame_length(self._read(wire.LENGTH.size)))
        self._in.check(payload, self._read(wire.MAC_BYTES))
        return payload

    def _read(self, count: int) -> bytes:
        assert self._sock is not None
        data = bytearray(count)
        view, filled = memoryview(data), 0
        while filled < count:
            got = self._sock.recv_into(view[filled:])
            if got == 0:
                raise ConnectionResetError("connection closed")
            filled += got
        return bytes(data)


def _dial(address: str, port: int, deadline: float, timeout: float) -> socket.socket:
    """Connects, trying again while nobody listens yet: under srun or torchrun rank 0 may start last."""
    pause = 0.02
    while True:
        left = deadline - time.monotonic()
        try:
            return socket.create_connection((address, port), timeout=max(left, 1.0))
        except OSError as error:
            if time.monotonic() + pause >= deadline:
                raise StoreTimeout(
                    f"could not reach the job's store at {address}:{port} within {timeout:g} s ({error}). "
                    "Is the launcher (or rank 0) running there, and does a firewall allow the port?"
                ) from error
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0)
