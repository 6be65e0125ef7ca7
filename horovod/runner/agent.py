# SPDX-License-Identifier: Apache-2.0
"""What runs on every other host: starts its workers for the launcher, which talks to it through ssh.

The launcher's end of the link is gone when standard input ends, or when no line came for long.

    standard input   one line of JSON: the workers with their environments (so the job's secret is on no
                     command line), then "ping" and "signal N" lines
    standard output  a marker (login scripts may print before it), then frames: kind, rank, length, bytes.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
from typing import Any, BinaryIO, Dict, Optional

from horovod.runner.workers import STDERR, STDOUT, Workers, WorkerSpec
from horovod.version import __version__

MARKER = b"\nhorovod-agent-1\n"
FRAME = struct.Struct(">BiI")  # kind, rank, length
EXIT, READY = 3, 4  # beside STDOUT and STDERR
PING_SECONDS = 2.0
# No ping for this long: the link is cut. "pause" (the launcher was stopped by Ctrl-Z) suspends the limit.
_SILENCE_SECONDS = 10.0


class Agent:
    """Serves one launcher."""

    def __init__(self, commands: BinaryIO, frames: BinaryIO) -> None:
        self._commands = commands
        self._frames = frames
        self._lock = threading.Lock()
        self._left = threading.Semaphore(0)

    def serve(self) -> None:
        """Runs the workers that the launcher asks for until all ended or the launcher is gone."""
        self._write(MARKER)
        line = self._commands.readline()
        if not line:
            return
        setup: Dict[str, Any] = json.loads(line)
        workers = Workers(self._output, self._exited)
        specs = [_spec(setup, one) for one in setup["workers"]]
        facts = {"version": __version__, "host": socket.gethostname(), "pid": os.getpid()}
        self._frame(READY, -1, json.dumps(facts).encode())
        workers.start(specs)
        watcher = threading.Thread(target=self._obey, args=(workers,), daemon=True)
        watcher.start()
        for _ in specs:
            self._left.acquire()
        workers.close()

    def _obey(self, workers: Workers) -> None:
        limit: Optional[float] = _SILENCE_SECONDS
        while True:
            readable, _, _ = select.select([self._commands], [], [], limit)
            line = self._commands.readline() if readable else b""
            if not line:
                break
            words = line.split()
            limit = None if words[0] == b"pause" else _SILENCE_SECONDS
            if words[0] == b"signal":
                workers.signal(int(words[1]))
            elif words[0] == b"terminate":
                workers.terminate()
        workers.terminate(grace=2.0)  # nobody reads our frames any more
        os._exit(1)

    def _output(self, rank: int, channel: int, data: bytes) -> None:
        self._frame(channel, rank, data)

    def _exited(self, rank: int, code: int) -> None:
        self._frame(EXIT, rank, b"%d" % code)
        self._left.release()

    def _frame(self, kind: int, rank: int, data: bytes) -> None:
        self._write(FRAME.pack(kind, rank, len(data)) + data)

    def _write(self, data: bytes) -> None:
        with self._lock:
            try:
                self._frames.write(data)
                self._frames.flush()
            except OSError:
                pass  # the launcher is gone; standard input says so too and ends the workers


def _spec(setup: Dict[str, Any], one: Dict[str, Any]) -> WorkerSpec:
    env = dict(os.environ)
    env.update(setup["env"])
    env.update(one["env"])
    cwd = setup["cwd"] if os.path.isdir(setup["cwd"]) else None
    return WorkerSpec(int(one["rank"]), [str(word) for word in one["command"]], env, cwd)


def main() -> None:
    """Entry of `python -m horovod.runner.agent`."""
    # Workers and libraries must not write into the frames by accident.
    frames = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    # Unbuffered, so that select() on it tells the truth.
    Agent(os.fdopen(0, "rb", buffering=0), frames).serve()


if __name__ == "__main__":
    main()

__all__ = ["EXIT", "FRAME", "MARKER", "READY", "STDERR", "STDOUT", "Agent"]
