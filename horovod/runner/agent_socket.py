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
import time
from typing import Any, Callable, Dict, Sequence

from horovod.rendezvous import store_wire as wire
from horovod.rendezvous.acceptor import Acceptor
from horovod.rendezvous.connection import Connection, Conversation
from horovod.rendezvous.dialling import dial
from horovod.rendezvous.errors import WireError
from horovod.rendezvous.network import address_of, listen
from horovod.rendezvous.readers import own
from horovod.runner import agent
from horovod.runner.channel import SocketChannel, message_length

PURPOSE = b"agent"


class AgentSocket(SocketChannel):
    """The launcher's end of the way to an agent that has called. See channel.AgentChannel.

    facts: what the agent said about itself: its host, its tag, its version.
    """

    facts: Dict[str, Any]

    def open(self) -> Dict[str, Any]:
        """What the agent said about itself."""
        return self.facts

    def why_ended(self) -> str:
        """A socket knows no more than this."""
        return "the connection broke: the host went down, its network was cut or the scheduler ended its task"


class AgentListener:
    """Waits for agents until closed.

    Args:
        welcome: called with each; on the listener's own thread, so it must not wait for anything.
    """

    def __init__(
        self, secret: bytes, addresses: Sequence[str], welcome: Callable[[AgentSocket], None], port: int = 0
    ) -> None:
        self._welcome = welcome
        listeners = listen(addresses, port)
        self.port = address_of(listeners[0])[1]
        self._acceptor = Acceptor(listeners, secret, PURPOSE, self._greet, "horovod-agents")

    def close(self) -> None:
        """Stops listening; agents that have come stay."""
        self._acceptor.close()

    def _greet(self, connection: Connection) -> Conversation:
        incoming = wire.Signer(connection.key, wire.TO_SERVER)
        message = yield message_length((yield wire.LENGTH.size))
        incoming.check(message, (yield wire.MAC_BYTES))
        try:
            facts = json.loads(agent.unpack(message)[2])
        except ValueError as error:
            raise WireError(f"not an agent: {error}") from error
        outgoing = wire.Signer(connection.key, wire.TO_CLIENT)
        found = AgentSocket(connection.release(), outgoing, incoming)
        found.facts = facts
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
    deadline = time.monotonic() + timeout
    sock, key = dial((address, port), secret, PURPOSE, deadline, waits=True)
    channel = SocketChannel(sock, wire.Signer(key, wire.TO_SERVER), wire.Signer(key, wire.TO_CLIENT))
    try:
        agent.Agent(channel, host, tag, env={own.SECRET: own.encode_secret(secret)}).serve()
    finally:
        sock.close()
