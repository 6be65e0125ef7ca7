# SPDX-License-Identifier: Apache-2.0
"""The job's notice board: an authenticated key-value store, served by a thread of its own.

It listens on the addresses it is given (never on all of them by default), speaks to nobody before they proved
the job's secret (acceptor.py, auth.py), and stores bytes without ever looking inside them. Who belongs to
which generation of the world is decided by generations.py; each generation has a board of its own.
"""

from __future__ import annotations

import concurrent.futures
import json
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, TypeVar

from horovod.rendezvous import store_wire as wire
from horovod.rendezvous.acceptor import Acceptor
from horovod.rendezvous.connection import Connection, Conversation
from horovod.rendezvous.errors import Dismissed, StoreError, StoreTimeout, Superseded, WireError
from horovod.rendezvous.generations import Claim, Generation, Generations, Member, Seat
from horovod.rendezvous.identity import ranks_text
from horovod.rendezvous.network import address_of, listen, loopback
from horovod.rendezvous.waits import Wait, Waits
from horovod.version import __version__

T = TypeVar("T")

# Beyond this, timelines and logs of several hosts no longer line up.
CLOCK_SKEW_SECONDS = 30.0
_VERDICTS = {StoreTimeout: wire.TIMED_OUT, Superseded: wire.SUPERSEDED, Dismissed: wire.DISMISSED}
_CLOSED = "the job's store is closed"
_SEATS = (-1, "")  # what those wait for whom no driver has given a place yet


class Event(NamedTuple):
    """What a driver wants to know.

    kind: "waiting" (a worker asks for a place and has none yet), "complete" (all of a generation have come),
    "failed" (a generation has failed, for the reason in `text`).
    """

    kind: str
    generation: int
    worker: str = ""
    text: str = ""


@dataclass(eq=False)
class _Peer:
    """A client that proved the secret, and the generation it has joined."""

    connection: Connection
    incoming: wire.Signer
    outgoing: wire.Signer
    generation: Optional[Generation] = None
    member: Optional[Member] = None

    def answer(self, error: Optional[StoreError], body: bytes = b"") -> None:
        verdict = wire.OK
        if error is not None:
            verdict, body = _VERDICTS.get(type(error), wire.FAILED), str(error).encode()
        for part in self.outgoing.frame(bytes([verdict]) + body):
            self.connection.send(part)


class StoreServer:
    """Serves the store of one job until close(). All methods may be called from any thread.

    Args:
        size: how many ranks are expected, so that others are refused.
        notice: called with a line of text for things worth telling the user that are not errors.
        sockets: listening already, instead of addresses and port; so that workers may be started before.
        on_event: called with what a driver wants to know, on the server's thread: it must not wait for it.
        driven: an elastic driver will `assign` ranks; workers that come before wait for it.
    """

    def __init__(
        self,
        secret: bytes,
        addresses: Optional[Sequence[str]] = None,
        port: int = 0,
        size: Optional[int] = None,
        notice: Callable[[str], None] = lambda text: None,
        sockets: Optional[List[socket.socket]] = None,
        on_event: Callable[[Event], None] = lambda event: None,
        driven: bool = False,
    ) -> None:
        self.secret = secret
        self._notice = notice
        self._on_event = on_event
        self._generations = Generations(size, self._changed, driven)
        self._values: Dict[str, bytes] = {}
        self._needed: Set[Member] = set()  # members that would be missed if they hung up
        self._idle = threading.Event()
        self._idle.set()
        listeners = sockets or listen(addresses or [loopback()], port)
        self.addresses = [address_of(one)[0] for one in listeners]
        self.address, self.port = address_of(listeners[0])
        self._acceptor = Acceptor(listeners, secret, wire.PURPOSE, self._converse, "horovod-store")
        self._waits = Waits(self._acceptor.later)

    @property
    def failure(self) -> Optional[str]:
        """The first reason given to fail(), if any."""
        return self._generations.failure

    def set(self, key: str, value: bytes) -> None:
        """Puts a value on the job's own board."""
        self._run(lambda: self._set(None, key, value))

    def get(self, key: str, timeout: float = 30.0) -> bytes:
        """A value of the job's own board; waits until somebody sets it, the job fails or the time is up."""
        found: concurrent.futures.Future[bytes] = concurrent.futures.Future()

        def answer(error: Optional[StoreError], value: bytes) -> None:
            if error is None:
                found.set_result(value)
            else:
                found.set_exception(error)

        def look() -> Optional[bytes]:
            self._generations.raise_failure()
            return self._values.get(key)

        wait = Wait((0, key), look, answer, lambda: f"waited {timeout:g} s for '{key}'", self)
        self._run(lambda: self._waits.add(wait, timeout))
        return found.result()

    def pop(self, key: str) -> Optional[bytes]:
        """Takes a value off the job's own board without waiting; None if nobody has set it."""
        return self._values.pop(key, None)

    def fail(self, reason: str) -> None:
        """The job has failed: every present and future call of every rank raises StoreError(reason)."""
        self._run(lambda: self._fail_job(reason))

    def lost(self, worker: str, cause: str) -> None:
        """A worker's process has ended; who waits for it in hvd.init() hears the cause at once.

        Args:
            worker: its rank as a text, or the id by which a driver knows it.
            cause: e.g. "rank 3 on node7 ended with exit code 1".
        """
        self._run(lambda: self._generations.lost(worker, cause))

    def assign(self, seats: Mapping[str, Seat]) -> int:
        """Opens the next generation of an elastic job: these workers, in these places. Returns its number."""

        def assign() -> int:
            number = self._generations.assign(seats)
            self._waits.look_again(_SEATS)
            return number

        return self._run(assign)

    def dismiss(self, worker: str, reason: str) -> None:
        """The job goes on without this worker: it is told so when it asks for its place."""

        def dismiss() -> None:
            self._generations.dismiss(worker, reason)
            self._waits.look_again(_SEATS)

        self._run(dismiss)

    def linger(self, seconds: float) -> None:
        """Waits until nobody who is connected needs the store any more; for servers inside rank 0."""
        self._idle.wait(seconds)

    def close(self) -> None:
        """Hangs up on everybody and frees the ports. Idempotent."""
        if self._acceptor.alive:
            self._acceptor.call(lambda: self._waits.drop(self, StoreError(_CLOSED)))
        self._acceptor.close()

    def __enter__(self) -> StoreServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self, function: Callable[[], T]) -> T:
        try:
            return self._acceptor.call(function).result()
        except concurrent.futures.CancelledError:
            raise StoreError(_CLOSED) from None

    # ------------------------------------------------------- conversations, on the acceptor's thread

    def _converse(self, connection: Connection) -> Conversation:
        key = connection.key
        peer = _Peer(connection, wire.Signer(key, wire.TO_SERVER), wire.Signer(key, wire.TO_CLIENT))
        connection.take_your_time()
        try:
            while True:
                length = wire.frame_length((yield wire.LENGTH.size))
                payload = yield length
                peer.incoming.check(payload, (yield wire.MAC_BYTES))
                self._request(peer, *wire.unpack_request(payload))
        except OSError:
            self._gone(peer)
            raise

    def _request(self, peer: _Peer, verb: int, name: str, value: bytes) -> None:
        try:
            if verb == wire.GET:
                self._get(peer, name, wire.seconds(*wire.SECONDS.unpack(value)))
            elif verb == wire.JOIN:
                asked = json.loads(value)
                self._join(peer, Claim.from_dict(asked["claim"]), wire.seconds(asked["seconds"]))
            else:
                self._obey(peer, verb, name, value)
                peer.answer(None)
        except StoreError as error:
            peer.answer(error)
        except (ValueError, KeyError, TypeError, struct.error) as error:
            raise WireError(f"malformed request: {error}") from error

    def _obey(self, peer: _Peer, verb: int, name: str, value: bytes) -> None:
        if verb == wire.HELLO:
            self._hello(json.loads(value))
        elif verb == wire.SET:
            self._check(peer)
            self._set(peer.generation, name, value)
        elif verb == wire.FAIL:
            reason = value.decode(errors="replace")
            if peer.generation is None:
                self._fail_job(reason)
            else:
                self._generations.fail_generation(peer.generation, reason)
        elif verb == wire.DONE:
            self._release(peer)
        else:
            raise WireError(f"unknown verb {verb}")

    def _hello(self, facts: Mapping[str, Any]) -> None:
        host, rank = str(facts["host"]), int(facts["rank"])
        who = f"rank {rank} on {host}" if rank >= 0 else f"a helper on {host}"
        if facts["version"] != __version__:
            self._fail_job(
                f"{who} runs Horovod {facts['version']}, the job was started with {__version__}: "
                "install the same version on every host"
            )
        skew = float(facts["time"]) - time.time()
        if abs(skew) > CLOCK_SKEW_SECONDS:
            self._notice(
                f"the clock of host {host} is {skew:+.0f} s off; timelines and logs will not line up"
            )
        self._generations.raise_failure()

    def _join(self, peer: _Peer, claim: Claim, seconds: float) -> None:
        self._release(peer)
        peer.generation = peer.member = None

        def look() -> Optional[bytes]:
            found = self._generations.sit(claim)
            if found is None:
                return None
            peer.generation, peer.member = found
            self._needed.add(peer.member)
            self._idle.clear()
            if peer.generation.complete:
                self._on_event(Event("complete", peer.generation.number))
            return json.dumps(peer.member.seat.as_dict()).encode()

        def late() -> str:
            return f"worker {claim.worker} on {claim.host} waited {seconds:g} s for a place in the job"

        if self._waits.add(Wait(_SEATS, look, peer.answer, late, peer), seconds):
            newest = self._generations.newest()
            self._on_event(Event("waiting", newest.number if newest else 0, claim.worker))

    def _get(self, peer: _Peer, name: str, seconds: float) -> None:
        generation = peer.generation

        def look() -> Optional[bytes]:
            self._check(peer)
            return (self._values if generation is None else generation.values).get(name)

        def late() -> str:
            return f"waited {seconds:g} s for '{name}'{_who_is_missing(generation)}"

        topic = (generation.number if generation else 0, name)
        self._waits.add(Wait(topic, look, peer.answer, late, peer), seconds)

    def _check(self, peer: _Peer) -> None:
        if peer.generation is not None and peer.member is not None:
            self._generations.check(peer.generation, peer.member)
        else:
            self._generations.raise_failure()

    def _release(self, peer: _Peer) -> None:
        if peer.member is not None:
            peer.member.done = True
            self._needed.discard(peer.member)
        if not self._needed:
            self._idle.set()

    def _gone(self, peer: _Peer) -> None:
        self._waits.drop(peer)
        if peer.generation is not None and peer.member is not None:
            self._generations.left(peer.generation, peer.member)
        self._release(peer)

    def _set(self, generation: Optional[Generation], key: str, value: bytes) -> None:
        self._generations.raise_failure()
        (self._values if generation is None else generation.values)[key] = value
        self._waits.look_again((generation.number if generation else 0, key))

    def _fail_job(self, reason: str) -> None:
        self._generations.fail(reason)
        self._waits.look_again_in(None)

    def _changed(self, generation: Generation) -> None:
        """A generation has failed or is not the newest any more: who waits in it hears so."""
        if generation.failure is not None:
            self._on_event(Event("failed", generation.number, text=generation.failure))
        self._waits.look_again_in(generation.number)


def _who_is_missing(generation: Optional[Generation]) -> str:
    if generation is None:
        return ""
    missing = generation.missing()
    if not missing:
        return f"; all {generation.size} ranks are connected, so one of them is stuck before this step"
    there = generation.size - len(missing)
    return f"; {there} of {generation.size} ranks connected, missing: {ranks_text(missing)}"
