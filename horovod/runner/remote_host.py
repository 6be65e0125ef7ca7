# SPDX-License-Identifier: Apache-2.0
"""The workers of another host, seen from the launcher: an agent (agent.py) at the other end of a channel."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from typing import Dict, Mapping, Optional, Tuple

from horovod.rendezvous.readers.own import SECRET
from horovod.runner import agent
from horovod.runner.channel import AgentChannel
from horovod.runner.guard import ALL
from horovod.runner.host_runner import (
    GRACE_SECONDS,
    STDERR,
    STDOUT,
    HostLost,
    HostReady,
    HostUnreachable,
    OutputFunction,
    ReportFunction,
    WorkerExited,
    WorkerSpec,
)
from horovod.runner.worker_env import is_exportable
from horovod.version import __version__

# How much longer than the launcher an agent endures silence: both ends of a cut cable should say the same.
_AGENT_PATIENCE_SECONDS = 2.0
# silence() is asked every second or so; if it was not, this process was stopped and has heard nobody.
_STOPPED_SECONDS = 5.0


class RemoteHost:
    """Runs workers on another host. See host_runner.HostRunner.

    Args:
        host: its name in events.
        channel: the way to its agent.
        env: variables of all workers; those that describe this machine are not sent.
        network_timeout: how long silence is endured, here (by whoever asks `silence`) and there.
    """

    def __init__(
        self,
        host: str,
        channel: AgentChannel,
        output: OutputFunction,
        report: ReportFunction,
        env: Mapping[str, str],
        network_timeout: float,
    ) -> None:
        self.host = host
        self._channel = channel
        self._output, self._report = output, report
        self._env = self._to_send(env)
        self._network_timeout = network_timeout
        self._commands: queue.SimpleQueue[Tuple[bytes, Optional[threading.Event]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._running: Dict[int, bool] = {}
        self._reached = self._ended = self._leaving = False
        self._listening_since: Optional[float] = None
        self._asked_at = self._forgiven_until = 0.0
        self._reader = threading.Thread(target=self._read, name=f"horovod-from-{host}", daemon=True)
        self._writer = threading.Thread(target=self._write, name=f"horovod-to-{host}", daemon=True)

    def open(self) -> None:
        """Connects; commands are kept until the agent answers."""
        self._reader.start()

    def start(self, spec: WorkerSpec) -> None:
        """Has one more worker started."""
        with self._lock:
            self._running[spec.worker] = True
        own = {name: value for name, value in self._to_send(spec.env).items() if self._env.get(name) != value}
        asked = {"command": spec.command, "env": own, "cwd": spec.cwd or os.getcwd()}
        self._ask(agent.START, spec.worker, json.dumps(asked).encode())

    def end(self, worker: int, grace: float = GRACE_SECONDS) -> None:
        """Has one worker ended."""
        self._ask(agent.END, worker, b"%f" % grace)

    def signal(self, number: int) -> None:
        """Has every worker signalled."""
        self._ask(agent.SIGNAL, ALL, b"%d" % number)

    def pause(self) -> None:
        """Tells the agent that this launcher will be silent for a while (Ctrl-Z)."""
        sent = threading.Event()
        self._ask(agent.PAUSE, sent=sent)
        if self._reached:
            sent.wait(0.5)

    def silence(self) -> float:
        """For how long nothing has been heard, not counting time in which this process did not listen."""
        now = time.monotonic()
        if now - self._asked_at > _STOPPED_SECONDS:
            self._forgiven_until = now
        self._asked_at = now
        since = self._listening_since
        if since is None or not self._reached or self._ended:
            return 0.0
        return now - max(since, self._forgiven_until)

    def terminate(self, grace: float = GRACE_SECONDS) -> None:
        """Ends the workers there, or the attempt to reach the host."""
        with self._lock:
            self._leaving = True
        if not self._reached:
            self._channel.close()
            return
        self.end(ALL, grace)
        if self.silence() >= self._network_timeout:
            return  # nobody there hears it; the agent ends them by itself
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not any(self._running.values()), grace + 2.0)

    def close(self, limit: float = 5.0) -> None:
        """Hangs up. An agent with workers left ends them by itself."""
        with self._lock:
            self._leaving = True
        self._channel.close()
        if self._reader.ident is not None:
            self._reader.join(limit)

    # ------------------------------------------------------------------------------------- private

    def _to_send(self, env: Mapping[str, str]) -> Dict[str, str]:
        hidden = () if self._channel.is_private else (SECRET,)  # an agent on a socket knows it already
        return {name: value for name, value in env.items() if is_exportable(name) and name not in hidden}

    def _ask(
        self, kind: int, worker: int = ALL, data: bytes = b"", sent: Optional[threading.Event] = None
    ) -> None:
        self._commands.put((agent.pack(kind, worker, data), sent))

    def _write(self) -> None:
        """Sends commands, and pings between them: so the agent can tell a cut link from a quiet launcher."""
        silence = self._network_timeout + _AGENT_PATIENCE_SECONDS
        setup = json.dumps({"env": self._env, "silence": silence}).encode()
        try:
            self._channel.send(agent.pack(agent.SETUP, ALL, setup))
            while not self._ended:
                try:
                    message, sent = self._commands.get(timeout=min(self._network_timeout / 5, 2.0))
                except queue.Empty:
                    message, sent = agent.pack(agent.PING), None
                self._channel.send(message)
                if sent is not None:
                    sent.set()
        except (OSError, ValueError):
            pass  # the reading side reports why

    def _read(self) -> None:
        try:
            facts = self._channel.open()
            if facts["version"] != __version__:
                raise ConnectionError(
                    f"it runs Horovod {facts['version']}, this host {__version__}: install the same on all"
                )
        except ConnectionError as error:
            self._over(HostUnreachable(self.host, str(error)))
            return
        self._reached = True
        self._writer.start()
        self._report(HostReady(self.host, f"calls itself {facts['host']}"))
        try:
            while True:
                self._listening_since = time.monotonic()
                message = self._channel.receive()
                self._listening_since = None
                assert message is not None
                self._heard(*agent.unpack(message))
        except (EOFError, OSError, ValueError):
            self._over(None)

    def _heard(self, kind: int, worker: int, data: bytes) -> None:
        if kind in (STDOUT, STDERR):
            self._output(worker, kind, data)
        elif kind == agent.EXITED:
            with self._changed:
                self._running[worker] = False
                self._changed.notify_all()
            self._report(WorkerExited(self.host, worker, int(data)))
        elif kind == agent.GAVE_UP:
            self._report(HostLost(self.host, data.decode(errors="replace")))

    def _over(self, event: Optional[HostUnreachable]) -> None:
        """The channel has ended: tells so, unless it was us who ended it."""
        with self._changed:
            self._ended = True
            leaving, running = self._leaving, any(self._running.values())
            self._changed.notify_all()
        if leaving:
            return
        if event is not None:
            self._report(event)
        elif running:
            self._report(HostLost(self.host, self._channel.why_ended()))
