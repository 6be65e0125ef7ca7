# SPDX-License-Identifier: Apache-2.0
"""What runs on every other host: starts and ends workers for a launcher, and passes on what they print.

The launcher talks to it through ssh's pipes (`python -m horovod.runner.agent`, started by ssh.py) or over a
socket that proved the job's secret (agent_socket.py). Messages are a kind, a worker's number and bytes:

    launcher -> agent                                  agent -> launcher
    SETUP   JSON: variables of all workers, silence    READY    JSON: who and where this is
    START   JSON: command, variables, folder           STDOUT, STDERR   what a worker printed; b"" ends it
    END     grace in seconds (worker -1: all)          EXITED   code
    SIGNAL  number                                     PONG     for every PING
    PING, PAUSE                                        GAVE_UP  text: why it ends its workers by itself

The launcher is gone when the channel ends, or when nothing came for `silence` seconds; then the workers are
ended. PAUSE (the launcher was stopped by Ctrl-Z) suspends that limit until the next message.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
from typing import Any, Dict, Optional, Set, Tuple

from horovod.runner.channel import Channel, PipeChannel
from horovod.runner.guard import ALL
from horovod.runner.host_runner import STDERR, STDOUT, Event, WorkerExited, WorkerSpec
from horovod.runner.local_host import LocalHost
from horovod.version import __version__

MARKER = b"\nhorovod-agent-2\n"  # what login scripts print comes before it
EXITED, READY, PONG, GAVE_UP = 3, 4, 5, 6  # beside STDOUT and STDERR
SETUP, START, END, SIGNAL, PING, PAUSE = range(16, 22)
_HEAD = struct.Struct(">Bi")
_FAREWELL_GRACE_SECONDS = 2.0


def pack(kind: int, worker: int = ALL, data: bytes = b"") -> bytes:
    """A message."""
    return _HEAD.pack(kind, worker) + data


def unpack(message: bytes) -> Tuple[int, int, bytes]:
    """The kind, worker and bytes of a message."""
    kind, worker = _HEAD.unpack_from(message)
    return kind, worker, message[_HEAD.size :]


class Agent:
    """Serves one launcher.

    Args:
        channel: to the launcher.
        host: what the launcher shall call this host; default its own name.
        tag: anything that helps the launcher to tell its agents apart, e.g. a Spark task's number.
        env: variables for the workers that the channel must not carry, as the secret over a plain socket.
    """

    def __init__(
        self, channel: Channel, host: str = "", tag: str = "", env: Optional[Dict[str, str]] = None
    ) -> None:
        self._channel = channel
        self._facts = {"version": __version__, "host": host or socket.gethostname(), "tag": tag}
        self._env = dict(os.environ, **(env or {}))
        self._silence: Optional[float] = None
        self._workers = LocalHost(self._facts["host"], self._output, self._happened)
        self._ping = threading.Semaphore(0)
        self._running: Set[int] = set()
        self._gone = False

    def serve(self) -> None:
        """Obeys until the launcher hangs up or falls silent; no worker outlives this call."""
        self._workers.open()
        threading.Thread(target=self._answer, name="horovod-pong", daemon=True).start()
        self._send(READY, data=json.dumps(dict(self._facts, pid=os.getpid())).encode())
        paused = False
        try:
            while True:
                heard_at = time.monotonic()
                message = self._channel.receive(None if paused else self._silence)
                if message is None:
                    self._give_up(time.monotonic() - heard_at)
                    return
                kind, worker, data = unpack(message)
                paused = kind == PAUSE
                self._obey(kind, worker, data)
        except (EOFError, OSError):
            pass
        finally:
            self._gone = True
            self._ping.release()
            if self._running:
                self._workers.terminate(_FAREWELL_GRACE_SECONDS)
            self._workers.close(limit=1.0)

    def _give_up(self, silence: float) -> None:
        text = f"it heard nothing from here for {silence:.0f} s and ended its workers: the network was cut"
        # Before the ends of the workers are told. Nobody may be there to read it: a blocked pipe must not
        # keep them alive.
        telling = threading.Thread(target=self._send, args=(GAVE_UP, ALL, text.encode()), daemon=True)
        telling.start()
        telling.join(1.0)

    def _obey(self, kind: int, worker: int, data: bytes) -> None:
        if kind == PING:
            self._ping.release()
        elif kind == SETUP:
            setup = json.loads(data)
            self._env.update(setup["env"])
            self._silence = setup["silence"]
        elif kind == START:
            self._running.add(worker)
            self._workers.start(self._spec(worker, json.loads(data)))
        elif kind == END:
            self._workers.end(worker, float(data))
        elif kind == SIGNAL:
            self._workers.signal(int(data))

    def _spec(self, worker: int, asked: Dict[str, Any]) -> WorkerSpec:
        cwd = asked["cwd"] if os.path.isdir(asked["cwd"]) else os.getcwd()
        return WorkerSpec(worker, asked["command"], dict(self._env, **asked["env"]), cwd)

    def _answer(self) -> None:
        """In a thread of its own: a launcher that does not read must not keep us from reading."""
        while self._ping.acquire() and not self._gone:
            self._send(PONG)

    def _output(self, worker: int, channel: int, data: bytes) -> None:
        self._send(channel, worker, data)

    def _happened(self, event: Event) -> None:
        if isinstance(event, WorkerExited):
            self._running.discard(event.worker)
            self._send(EXITED, event.worker, b"%d" % event.code)

    def _send(self, kind: int, worker: int = ALL, data: bytes = b"") -> None:
        try:
            self._channel.send(pack(kind, worker, data))
        except OSError:
            pass  # the launcher is gone, which serve() notices


def main() -> None:
    """Entry of `python -m horovod.runner.agent`: serves whoever is at the other end of ssh."""
    # Workers and libraries must not write into the messages by accident.
    messages = os.dup(1)
    os.dup2(2, 1)
    os.write(messages, MARKER)
    Agent(PipeChannel(0, messages)).serve()
    # Threads that wait for a launcher which does not read any more must not keep this process.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

__all__ = ["STDERR", "STDOUT", "Agent", "pack", "unpack"]
