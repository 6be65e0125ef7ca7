# SPDX-License-Identifier: Apache-2.0
"""The job's notice board, seen by a worker: small named values, shared by all ranks.

Workers use it to find each other (addresses), and `horovod.run` to hand out the function and collect the
results. The board itself is horovod.rendezvous.store_server.StoreServer, usually inside the launcher.

    with StoreClient("10.0.0.1", 5021, secret, host="node7") as store:
        store.set("name", b"value")             # on the job's own board
        seat = store.join(claim)                # which rank am I, in which generation of the world?
        store.set("address/1", b"10.0.0.2")     # on the board of that generation
        store.get("address/0", timeout=30)      # waits until rank 0 has set it

A rank that disappears before it called done() fails everybody's get() in its generation, with one message
that names it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from typing import Dict, Optional, Type

from horovod.common import config
from horovod.rendezvous import store_wire as wire
from horovod.rendezvous.dialling import dial
from horovod.rendezvous.errors import (
    AuthenticationError,
    Dismissed,
    StoreError,
    StoreRefused,
    StoreTimeout,
    Superseded,
)
from horovod.rendezvous.generations import UNKNOWN, Claim, Seat
from horovod.rendezvous.network import read_exactly
from horovod.version import __version__

_ERRORS: Dict[int, Type[StoreError]] = {
    wire.TIMED_OUT: StoreTimeout, wire.SUPERSEDED: Superseded, wire.DISMISSED: Dismissed,
}  # fmt: skip


class StoreClient:
    """A connection to the job's store. Safe to share between threads (one request at a time).

    Args:
        host, rank: who is calling, for the store's errors.
    """

    def __init__(
        self,
        address: str,
        port: int,
        secret: bytes,
        *,
        host: str = "",
        rank: int = UNKNOWN,
        timeout: float = 30.0,
    ) -> None:
        self.address, self.port = address, port
        self.secret = secret
        self._host, self._rank = host or socket.gethostname(), rank
        self._lock = threading.Lock()
        self._sock: Optional[socket.socket] = None
        # The server answers a get that timed out; only one that is dead or cut off is silent for longer.
        self._grace = float(config.usable("network_timeout_seconds"))
        self._open(timeout)

    def join(self, claim: Claim, timeout: float = 30.0) -> Seat:
        """This worker's place in the newest generation of its world; waits until it has one.

        What is said on this connection afterwards belongs to that generation.

        Raises:
            Superseded: (a later call) the generation was given up for a newer one: join again.
            Dismissed: the job goes on without this worker.
            StoreError: the generation it was expected in has failed.
        """
        seconds = min(timeout, wire.MAX_SECONDS)
        asked = json.dumps({"claim": claim.as_dict(), "seconds": seconds}).encode()
        return Seat(**json.loads(self._ask(wire.JOIN, "", asked, wait=seconds)))

    def set(self, key: str, value: bytes) -> None:
        """Puts a value on the board (replacing an earlier one)."""
        self._ask(wire.SET, key, value)

    def get(self, key: str, timeout: float = 30.0) -> bytes:
        """The value of a key; waits until somebody sets it, the generation fails or the time is up."""
        seconds = min(max(timeout, 0.0), wire.MAX_SECONDS)
        return self._ask(wire.GET, key, wire.SECONDS.pack(seconds), wait=seconds)

    def fail(self, reason: str) -> None:
        """Makes every present and future get() in this generation raise StoreError(reason).

        Before join() that is the whole job, for ever.
        """
        self._ask(wire.FAIL, "", reason.encode())

    def done(self) -> None:
        """Says that this rank may disconnect from now on without failing the others."""
        try:
            self._ask(wire.DONE, "", b"")
        except StoreError:
            pass  # the store's own end: it may go when it has answered everything that was asked of it

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
        where = f"{self.address}:{self.port}"
        deadline = time.monotonic() + timeout
        try:
            self._sock, key = dial((self.address, self.port), self.secret, wire.PURPOSE, deadline, waits=True)
        except AuthenticationError as error:
            raise StoreRefused(f"cannot join the job at {where}: {error}") from None
        except OSError as error:
            raise StoreTimeout(
                f"could not reach the job's store at {where} within {timeout:g} s ({error}). "
                "Is the launcher (or rank 0) running there, and does a firewall allow the port?"
            ) from error
        self._out = wire.Signer(key, wire.TO_SERVER)
        self._in = wire.Signer(key, wire.TO_CLIENT)
        # The Python hash seed and paths stay private; these few facts let the server name what is wrong.
        facts = {"host": self._host, "rank": self._rank, "pid": os.getpid()}
        facts.update(version=__version__, time=time.time())
        try:
            self._ask(wire.HELLO, "", json.dumps(facts).encode())
        except StoreError:
            self.close()
            raise

    def _ask(self, verb: int, key: str, value: bytes, wait: float = 0.0) -> bytes:
        with self._lock:
            if self._sock is None:
                raise StoreError("this connection to the job's store is closed")
            self._sock.settimeout(wait + self._grace)
            try:
                for part in self._out.frame(wire.pack_request(verb, key, value)):
                    self._sock.sendall(part)
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
        raise _ERRORS.get(verdict, StoreError)(body.decode(errors="replace"))

    def _receive(self) -> bytes:
        assert self._sock is not None
        payload = read_exactly(self._sock, wire.frame_length(read_exactly(self._sock, wire.LENGTH.size)))
        self._in.check(payload, read_exactly(self._sock, wire.MAC_BYTES))
        return payload
