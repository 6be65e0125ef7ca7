# SPDX-License-Identifier: Apache-2.0
"""One accepted connection, led by a conversation; see acceptor.py."""

from __future__ import annotations

import collections
import selectors
import socket
import time
from typing import Deque, Generator, Optional, Protocol

from horovod.rendezvous import auth

# Yields how many bytes it wants next, and is sent exactly those.
Conversation = Generator[int, bytes, None]

_CHUNK = 1 << 18


class Owner(Protocol):
    """What a connection needs of its acceptor."""

    def watch(self, connection: Connection) -> None:
        """It waits for something else now."""

    def trust(self, connection: Connection) -> None:
        """It may take its time."""

    def forget(self, connection: Connection) -> None:
        """It is none of the acceptor's any more."""

    def drop(self, connection: Connection, error: Optional[BaseException], why: str) -> None:
        """It is over."""

    def drop_soon(self, connection: Connection, error: OSError) -> None:
        """It is over, but not in the middle of somebody else's turn."""


class Connection:
    """One accepted connection. Its methods are for conversations, on the acceptor's thread."""

    def __init__(self, owner: Owner, sock: socket.socket, peer: str) -> None:
        self.sock = sock
        self.peer = peer  # e.g. "10.0.0.2:40112", for the log
        self.key = b""  # the session key, once proven
        self.open = True
        self.deadline = time.monotonic() + auth.HANDSHAKE_SECONDS  # unless it may take its time
        self._owner = owner
        self._wanted = 0
        self._data = bytearray()
        self._unsent: Deque[memoryview] = collections.deque()
        self._talk: Optional[Conversation] = None

    def send(self, data: bytes) -> None:
        """Sends without ever blocking; what does not fit into the socket now follows when it does."""
        view = memoryview(data)
        if not self._unsent and self.open:
            try:
                view = view[self.sock.send(view) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:  # may be another conversation's turn, which must not suffer from it
                self._owner.drop_soon(self, error)
                return
        if len(view) and self.open:
            self._unsent.append(view)
            self._owner.watch(self)

    def take_your_time(self) -> None:
        """Lifts the time limit: for services whose peers have proved themselves and may then be silent."""
        self._owner.trust(self)

    def release(self) -> socket.socket:
        """Hands the socket over, blocking again; the acceptor forgets it."""
        self._owner.forget(self)
        self.sock.setblocking(True)
        return self.sock

    # ------------------------------------------------------------------------ the acceptor's side

    def begin(self, talk: Conversation) -> None:
        """Starts a conversation."""
        self._talk = talk
        self._advance(None)

    def on_readable(self) -> None:
        """Reads some, and lets the conversation have it when it is all it wanted."""
        part = self.sock.recv(min(self._wanted - len(self._data), _CHUNK))
        if not part:
            raise ConnectionResetError("connection closed")
        self._data += part
        if len(self._data) == self._wanted:
            data, self._data = bytes(self._data), bytearray()
            self._advance(data)

    def on_writable(self) -> None:
        """Sends more of what is waiting."""
        while self._unsent:
            sent = self.sock.send(self._unsent[0])
            if sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][sent:]
                return
            self._unsent.popleft()
        self._owner.watch(self)

    @property
    def events(self) -> int:
        """What to wait for."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def end(self, error: Optional[BaseException]) -> None:
        """Tells the conversation that the peer is gone, or (None) that the acceptor closes."""
        talk, self._talk = self._talk, None
        if talk is None:
            return
        try:
            if error is None:
                talk.close()
            else:
                talk.throw(error)
        except StopIteration:
            pass
        except Exception as raised:
            if raised is not error:
                raise

    def _advance(self, data: Optional[bytes]) -> None:
        talk = self._talk
        if talk is None:
            return
        try:
            self._wanted = next(talk) if data is None else talk.send(data)
            while self._wanted == 0 and self.open:  # e.g. an empty value: nothing to wait for
                self._wanted = talk.send(b"")
        except StopIteration:
            self._talk = None
            if self.open:
                self._owner.drop(self, None, "")
