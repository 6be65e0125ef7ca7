# SPDX-License-Identifier: Apache-2.0
"""Agents that come to the launcher: for workers on hosts that a scheduler gave us (Spark tasks, Ray actors).

The launcher listens, a task there calls `serve`. Both ends prove the job's secret before anything is read,
and sign every message afterwards. The secret itself is never sent: the scheduler has carried it to the task,
in its own way, and `serve` gives it to the workers it starts. Other variables can be read on the wire.

    listener = AgentListener(secret, ["10.0.0.1"], welcome)            # the launcher
    serve("10.0.0.1", listener.port, secret, tag="7")                  # the task, until the launcher hangs up

`welcome` gets an AgentSocket, with which the launcher makes a RemoteHost.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any, Callable, Dict, List, Sequence

from horovod.rendezvous import auth
from horovod.rendezvous.network import listen
from horovod.rendezvous.readers import own
from horovod.runner import agent
from horovod.runner.channel import SocketChannel

PURPOSE = b"agent"
# Connections that have not proved the secret yet; each is held for auth.HANDSHAKE_SECONDS at most.
_MAX_STRANGERS = 256


class AgentSocket(SocketChannel):
    """The launcher's end of the way to an agent that has called."""

    def __init__(self, sock: socket.socket, key: bytes) -> None:
        super().__init__(sock, key, is_server=True)
        self.facts: Dict[str, Any] = {}

    def introduce(self, timeout: float) -> None:
        """Reads what the agent says about itself: its host, its tag, its version."""
        message = self.receive(timeout)
        if message is None:
            raise EOFError("the agent did not say who it is")
        self.facts = json.loads(agent.unpack(message)[2])

    def open(self) -> Dict[str, Any]:
        """What the agent said about itself."""
        return self.facts

    def why_ended(self) -> str:
        """A socket knows no more than this."""
        return "the connection broke: the host went down, its network was cut or the scheduler ended its task"


class AgentListener:
    """Waits for agents until closed; calls `welcome` with each, on a thread of its own."""

    def __init__(
        self, secret: bytes, addresses: Sequence[str], welcome: Callable[[AgentSocket], None], port: int = 0
    ) -> None:
        self._secret = secret
        self._welcome = welcome
        self._sockets: List[socket.socket] = listen(addresses, port)
        self.port: int = self._sockets[0].getsockname()[1]
        self._room = threading.BoundedSemaphore(_MAX_STRANGERS)
        self._closed = False
        for sock in self._sockets:
            threading.Thread(target=self._accept, args=(sock,), name="horovod-agents", daemon=True).start()

    def close(self) -> None:
        """Stops listening; agents that have come stay."""
        self._closed = True
        for sock in self._sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)  # wakes accept()
            except OSError:
                pass
            sock.close()

    def _accept(self, listening: socket.socket) -> None:
        while not self._closed:
            self._room.acquire()  # strangers wait in the kernel's queue; each holds a place for seconds only
            try:
                sock, _ = listening.accept()
            except OSError:
                self._room.release()
                time.sleep(0.05)  # gone again, or no descriptors left
                continue
            threading.Thread(target=self._greet, args=(sock,), daemon=True).start()

    def _greet(self, sock: socket.socket) -> None:
        try:
            found = AgentSocket(sock, auth.accept(sock, self._secret, purpose=PURPOSE))
            found.introduce(auth.HANDSHAKE_SECONDS)
        except (OSError, EOFError, ValueError):
            sock.close()  # a stranger: no answer, no log to fill
            return
        finally:
            self._room.release()
        self._welcome(found)


def serve(
    address: str, port: int, secret: bytes, host: str = "", tag: str = "", timeout: float = 30.0
) -> None:
    """Runs workers for the launcher that listens there, until it hangs up; none outlives this call.

    Args:
        address, port, secret: of the launcher's AgentListener.
        host: what the launcher shall call this host; default its name.
        tag: tells this agent from others, e.g. the number of the task.
        timeout: how long to try to reach the launcher.
    """
    sock = socket.create_connection((address, port), timeout=timeout)
    try:
        key = auth.connect(sock, secret, timeout, PURPOSE)
        channel = SocketChannel(sock, key, is_server=False)
        agent.Agent(channel, host, tag, env={own.SECRET: own.encode_secret(secret)}).serve()
    finally:
        sock.close()
