# SPDX-License-Identifier: Apache-2.0
"""What the job's store does for those who proved the secret: boards, places, failures.

Everything here runs on the acceptor's thread. Who belongs to which generation of the world is decided by
generations.py; each generation has a board of its own, and so has the job itself.
"""

from __future__ import annotations

import json
import logging
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Set

from horovod.rendezvous import store_wire as wire
from horovod.rendezvous.connection import Connection, Conversation
from horovod.rendezvous.errors import Dismissed, StoreError, StoreTimeout, Superseded, WireError
from horovod.rendezvous.generations import Claim, Generation, Generations, Member, Seat
from horovod.rendezvous.identity import ranks_text
from horovod.rendezvous.waits import Wait, Waits
from horovod.version import __version__

log = logging.getLogger("horovod")

# Beyond this, timelines and logs of several hosts no longer line up.
CLOCK_SKEW_SECONDS = 30.0
_VERDICTS = {StoreTimeout: wire.TIMED_OUT, Superseded: wire.SUPERSEDED, Dismissed: wire.DISMISSED}
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


class StoreService:
    """The state of one job's store.

    Args:
        later: runs a function after that many seconds, on the same thread.
        size, notice, on_event, driven: see StoreServer.
    """

    def __init__(
        self,
        later: Callable[[float, Callable[[], None]], None],
        size: Optional[int],
        notice: Callable[[str], None],
        on_event: Callable[[Event], None],
        driven: bool,
    ) -> None:
        self._notice = notice
        self._on_event = on_event
        self.generations = Generations(size, self._changed, driven)
        self.values: Dict[str, bytes] = {}  # the job's own board
        self.waits = Waits(later)
        self.idle = threading.Event()  # nobody who is connected would be missed
        self.idle.set()
        self._needed: Set[Member] = set()

    def converse(self, connection: Connection) -> Conversation:
        """The conversation with one client."""
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

    def set(self, generation: Optional[Generation], key: str, value: bytes) -> None:
        """Puts a value on a generation's board; None: on the job's own."""
        self.generations.raise_failure()
        (self.values if generation is None else generation.values)[key] = value
        self.waits.look_again((generation.number if generation else 0, key))

    def fail_job(self, reason: str) -> None:
        """Everybody hears of it, now and later."""
        self.generations.fail(reason)
        self.waits.look_again_in(None)

    def assign(self, seats: Mapping[str, Seat]) -> int:
        """Opens the next generation of an elastic job."""
        number = self.generations.assign(seats)
        self.waits.look_again(_SEATS)
        return number

    def dismiss(self, worker: str, reason: str) -> None:
        """The job goes on without this worker."""
        self.generations.dismiss(worker, reason)
        self.waits.look_again(_SEATS)

    # -------------------------------------------------------------------------------- requests --

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
            self.set(peer.generation, name, value)
        elif verb == wire.FAIL:
            reason = value.decode(errors="replace")
            if peer.generation is None:
                self.fail_job(reason)
            else:
                self.generations.fail_generation(peer.generation, reason)
        elif verb == wire.DONE:
            self._release(peer)
        else:
            raise WireError(f"unknown verb {verb}")

    def _hello(self, facts: Mapping[str, Any]) -> None:
        host, rank = str(facts["host"]), int(facts["rank"])
        who = f"rank {rank} on {host}" if rank >= 0 else f"a helper on {host}"
        if facts["version"] != __version__:
            self.fail_job(
                f"{who} runs Horovod {facts['version']}, the job was started with {__version__}: "
                "install the same version on every host"
            )
        skew = float(facts["time"]) - time.time()
        if abs(skew) > CLOCK_SKEW_SECONDS:
            self._notice(
                f"the clock of host {host} is {skew:+.0f} s off; timelines and logs will not line up"
            )
        self.generations.raise_failure()

    def _join(self, peer: _Peer, claim: Claim, seconds: float) -> None:
        self._release(peer)
        peer.generation = peer.member = None

        def look() -> Optional[bytes]:
            found = self.generations.sit(claim)
            if found is None:
                return None
            peer.generation, peer.member = found
            self._needed.add(peer.member)
            self.idle.clear()
            if peer.generation.complete:
                self._tell_driver(Event("complete", peer.generation.number))
            return json.dumps(peer.member.seat.as_dict()).encode()

        def late() -> str:
            return f"worker {claim.worker} on {claim.host} waited {seconds:g} s for a place in the job"

        if self.waits.add(Wait(_SEATS, look, peer.answer, late, peer), seconds):
            newest = self.generations.newest()
            self._tell_driver(Event("waiting", newest.number if newest else 0, claim.worker))

    def _get(self, peer: _Peer, name: str, seconds: float) -> None:
        generation = peer.generation

        def look() -> Optional[bytes]:
            self._check(peer)
            return (self.values if generation is None else generation.values).get(name)

        def late() -> str:
            return f"waited {seconds:g} s for '{name}'{_who_is_missing(generation)}"

        topic = (generation.number if generation else 0, name)
        self.waits.add(Wait(topic, look, peer.answer, late, peer), seconds)

    def _check(self, peer: _Peer) -> None:
        if peer.generation is not None and peer.member is not None:
            self.generations.check(peer.generation, peer.member)
        else:
            self.generations.raise_failure()

    def _release(self, peer: _Peer) -> None:
        if peer.member is not None:
            peer.member.done = True
            self._needed.discard(peer.member)
        if not self._needed:
            self.idle.set()

    def _gone(self, peer: _Peer) -> None:
        self.waits.drop(peer)
        if peer.generation is not None and peer.member is not None:
            self.generations.left(peer.generation, peer.member)
        self._release(peer)

    def _changed(self, generation: Generation, failed: bool) -> None:
        """A generation has failed or is not the newest any more: who waits in it hears so."""
        if failed:
            self._tell_driver(Event("failed", generation.number, text=generation.failure or ""))
        self.waits.look_again_in(generation.number)

    def _tell_driver(self, event: Event) -> None:
        try:
            self._on_event(event)
        except Exception:  # a driver's mistake must not end the connection whose turn it is
            log.exception("while the driver was told of %s", event)


def _who_is_missing(generation: Optional[Generation]) -> str:
    if generation is None:
        return ""
    missing = generation.missing()
    if not missing:
        return f"; all {generation.size} ranks are connected, so one of them is stuck before this step"
    there = generation.size - len(missing)
    return f"; {there} of {generation.size} ranks connected, missing: {ranks_text(missing)}"
