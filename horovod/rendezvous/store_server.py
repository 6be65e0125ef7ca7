# SPDX-License-Identifier: Apache-2.0
"""The job's notice board: an authenticated key-value store served by asyncio in a thread of its own.

It listens on the addresses it is given (never on all of them by default), speaks to nobody before they
proved the job's secret (horovod.rendezvous.auth), and stores bytes without ever looking inside them.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Coroutine, Dict, List, Optional, Sequence, Set, TypeVar

from horovod.rendezvous import auth
from horovod.rendezvous import store_wire as wire
from horovod.rendezvous.identity import ranks_text
from horovod.rendezvous.network import listen
from horovod.rendezvous.store import StoreError, StoreTimeout
from horovod.version import __version__

T = TypeVar("T")

# Strangers hold a connection for HANDSHAKE_SECONDS at most; this bounds how many at a time.
MAX_STRANGERS = 4096
# Beyond this, timelines and logs of several hosts no longer line up.
CLOCK_SKEW_SECONDS = 30.0


@dataclass
class Member:
    """A client that proved the secret and said who it is."""

    rank: int
    size: int
    host: str
    pid: int
    done: bool = False

    def __str__(self) -> str:
        return f"rank {self.rank} on host {self.host}" if self.rank >= 0 else f"a helper on host {self.host}"


class StoreServer:
    """Serves the store of one job until close(). All methods may be called from any thread.

    size: how many ranks are expected, so that timeouts can say which are missing.
    notice: called with a line of text for things worth telling the user that are not errors.
    sockets: listening already, instead of addresses and port; so that workers may be started before.
    """

    def __init__(
        self,
        secret: bytes,
        addresses: Sequence[str] = ("127.0.0.1",),
        port: int = 0,
        size: Optional[int] = None,
        notice: Optional[Callable[[str], None]] = None,
        sockets: Optional[List[socket.socket]] = None,
    ) -> None:
        self.secret = secret
        self.size = size
        self._notice = notice or (lambda text: None)
        self._values: Dict[str, bytes] = {}
        self._changed: Dict[str, asyncio.Event] = {}
        self._present: Dict[int, Member] = {}
        self._hosts_seen: Dict[int, str] = {}
        self._failure: Optional[str] = None
        self._strangers = 0
        self._connections: Set[asyncio.Task[None]] = set()
        self._sockets = sockets or listen(addresses, port)
        self.addresses = [s.getsockname()[0] for s in self._sockets]
        self.address = self.addresses[0]
        self.port: int = self._sockets[0].getsockname()[1]
        self._closing = threading.Lock()
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="horovod-store", daemon=True)
        self._thread.start()
        ready.wait()

    @property
    def failure(self) -> Optional[str]:
        """The first reason given to fail(), if any."""
        return self._failure

    def present(self) -> List[int]:
        """Ranks that have connected so far."""
        return sorted(self._hosts_seen)

    def set(self, key: str, value: bytes) -> None:
        """As StoreClient.set."""
        self._call(self._set(key, value))

    def get(self, key: str, timeout: float = 30.0) -> bytes:
        """As StoreClient.get."""
        return self._call(self._get(key, timeout))

    def pop(self, key: str) -> Optional[bytes]:
        """Takes a value off the board without waiting; None if nobody has set it."""
        return self._values.pop(key, None)

    def fail(self, reason: str) -> None:
        """As StoreClient.fail."""
        self._call(self._fail(reason))

    def linger(self, seconds: float) -> None:
        """Waits until nobody who is connected needs the store any more; for servers inside rank 0."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._thread.is_alive():
            if all(member.done for member in list(self._present.values())):
                return
            time.sleep(0.01)

    def close(self) -> None:
        """Hangs up on everybody and frees the ports. Idempotent."""
        with self._closing:
            if self._thread.is_alive():
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()

    def __enter__(self) -> StoreServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --------------------------------------------------------------------------- the serving thread

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if not self._thread.is_alive():
            work.close()
            raise StoreError("the job's store is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _serve(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            for sock in self._sockets:
                self._loop.run_until_complete(asyncio.start_server(self._connected, sock=sock, backlog=1024))
            self._loop.call_soon(ready.set)
            self._loop.run_forever()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0.01))
        finally:
            for sock in self._sockets:
                sock.close()
            self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock: socket.socket = writer.get_extra_info("socket")
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            key = await self._authenticate(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            writer.transport.abort()  # a stranger: no answer, no log to fill, no state
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            return
        member: List[Member] = []
        try:
            await self._converse(reader, writer, key, member)
        except (OSError, asyncio.IncompleteReadError) as error:
            await self._lost(member, error)
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()

    async def _authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        if self._strangers >= MAX_STRANGERS:
            raise auth.AuthenticationError("too many unauthenticated connections")
        self._strangers += 1
        try:
            return await asyncio.wait_for(self._handshake(reader, writer), auth.HANDSHAKE_SECONDS)
        finally:
            self._strangers -= 1

    async def _handshake(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        theirs = await reader.readexactly(auth.HELLO_BYTES)
        auth.check_hello(theirs)
        mine = auth.hello()
        writer.write(mine)
        proof = await reader.readexactly(auth.PROOF_BYTES)
        auth.check_proof(auth.client_proof(self.secret, theirs, mine), proof)
        writer.write(auth.server_proof(self.secret, theirs, mine))
        return auth.session_key(self.secret, theirs, mine)

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes, member: List[Member]
    ) -> None:
        incoming, outgoing = wire.Signer(key, wire.TO_SERVER), wire.Signer(key, wire.TO_CLIENT)
        while True:
            length = wire.frame_length(await reader.readexactly(wire.LENGTH.size))
            payload = await reader.readexactly(length)
            incoming.check(payload, await reader.readexactly(wire.MAC_BYTES))
            verb, name, value = wire.unpack_request(payload)
            try:
                if verb == wire.GET:
                    answer = await self._watch_while(reader, self._get(name, struct.unpack(">d", value)[0]))
                else:
                    answer = await self._obey(verb, name, value, member)
                reply = bytes([wire.OK]) + answer
            except StoreTimeout as error:
                reply = bytes([wire.TIMED_OUT]) + str(error).encode()
            except StoreError as error:
                reply = bytes([wire.FAILED]) + str(error).encode()
            writer.write(outgoing.frame(reply))
            await writer.drain()

    async def _watch_while(self, reader: asyncio.StreamReader, waiting: Coroutine[Any, Any, bytes]) -> bytes:
        """Waits for a value, but notices at once when the client that asked is gone."""
        task = asyncio.ensure_future(waiting)
        while True:
            done, _ = await asyncio.wait({task}, timeout=0.25)
            if done:
                return task.result()
            if reader.at_eof():
                task.cancel()
                raise ConnectionResetError("connection closed")

    async def _obey(self, verb: int, name: str, value: bytes, member: List[Member]) -> bytes:
        if verb == wire.HELLO:
            await self._hello(value, member)
        elif verb == wire.SET:
            await self._set(name, value)
        elif verb == wire.FAIL:
            await self._fail(value.decode(errors="replace"))
        elif verb == wire.DONE:
            for one in member:
                one.done = True
        else:
            raise wire.WireError(f"unknown verb {verb}")
        return b""

    async def _hello(self, value: bytes, member: List[Member]) -> None:
        facts = json.loads(value)
        new = Member(int(facts["rank"]), int(facts["size"]), str(facts["host"]), int(facts["pid"]))
        if facts["version"] != __version__:
            await self._fail(
                f"{new} runs Horovod {facts['version']}, the job was started with {__version__}: "
                "install the same version on every host"
            )
        skew = float(facts["time"]) - time.time()
        if abs(skew) > CLOCK_SKEW_SECONDS:
            self._notice(
                f"the clock of host {new.host} is {skew:+.0f} s off; timelines and logs will not line up"
            )
        if new.rank >= 0:
            await self._check_rank(new)
            self._present[new.rank] = new
            self._hosts_seen[new.rank] = new.host
        member.append(new)
        self._raise_failure()

    async def _check_rank(self, new: Member) -> None:
        old = self._present.get(new.rank)
        if old is not None and (old.host, old.pid) != (new.host, new.pid):
            await self._fail(
                f"two processes say they are rank {new.rank}: process {old.pid} on {old.host} and process "
                f"{new.pid} on {new.host}. Start the script once per rank, with one launcher only"
            )
        if self.size is not None and new.size >= 0 and new.size != self.size:
            await self._fail(
                f"{new} believes the job has {new.size} ranks, the launcher started {self.size}. "
                "Do not set HOROVOD_SIZE by hand and do not nest launchers"
            )

    async def _lost(self, member: List[Member], error: BaseException) -> None:
        for one in member:
            if self._present.get(one.rank) is one:
                del self._present[one.rank]
            if not one.done and one.rank >= 0:
                await self._fail(f"{one} disappeared while the job was starting (its process ended)")

    # ------------------------------------------------------------------------------------ the board

    async def _set(self, key: str, value: bytes) -> None:
        self._raise_failure()
        self._values[key] = value
        event = self._changed.pop(key, None)
        if event is not None:
            event.set()

    async def _get(self, key: str, timeout: float) -> bytes:
        deadline = self._loop.time() + timeout
        while True:
            self._raise_failure()
            if key in self._values:
                return self._values[key]
            event = self._changed.setdefault(key, asyncio.Event())
            try:
                await asyncio.wait_for(event.wait(), deadline - self._loop.time())
            except asyncio.TimeoutError:
                raise StoreTimeout(f"waited {timeout:g} s for '{key}'; {self._who_is_missing()}") from None

    async def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
        for event in self._changed.values():
            event.set()
        self._changed.clear()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise StoreError(self._failure)

    def _who_is_missing(self) -> str:
        if self.size is None:
            return f"ranks seen so far: {ranks_text(self.present())}"
        missing = sorted(set(range(self.size)) - set(self._hosts_seen))
        if not missing:
            return f"all {self.size} ranks are connected, so one of them is stuck before this step"
        return f"{self.size - len(missing)} of {self.size} ranks connected, missing: {ranks_text(missing)}"
