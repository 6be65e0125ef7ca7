# SPDX-License-Identifier: Apache-2.0
"""The ranks of one contender: processes that are connected to each other and sleep until it is their turn."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from typing import Any, Dict, List, Mapping, Sequence

from benchmarks import priority
from benchmarks.environments import ROOT
from benchmarks.rows import Turn

START_TIMEOUT_S = 120.0
COMMAND_TIMEOUT_S = 60.0


class ContenderFailed(RuntimeError):
    """A contender did not start, or ended, or said that it cannot do what it was told."""


class Team:
    """Started with a command for each process (a launcher counts as one); `size` ranks report back."""

    def __init__(
        self, name: str, size: int, commands: Sequence[Sequence[str]], env: Mapping[str, str]
    ) -> None:
        self.name, self.size = name, size
        self._directory = tempfile.TemporaryDirectory(prefix="hvd-bench-")
        path = os.path.join(self._directory.name, "socket")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(size)
        self._listener.settimeout(1.0)
        self._log = open(os.path.join(self._directory.name, "log"), "w+")
        self._processes = [
            subprocess.Popen(
                list(command),
                env={**os.environ, **env, "HVD_BENCH_SOCKET": path},
                cwd=ROOT,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            for command in commands
        ]
        self._streams: List[Any] = []
        self.failed = ""  # why it can be used no more

    def gather(self) -> None:
        """Waits until all ranks are there, and sees that they add correctly."""
        try:
            self._accept_all()
            self.command("check")
        except BaseException:
            self.close()
            raise
        if priority.asked_for(self.size):
            for process in self._processes:
                priority.prefer(process.pid)

    def _accept_all(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(self._streams) < self.size:
            try:
                channel, _ = self._listener.accept()
            except socket.timeout:
                failed = any(p.poll() not in (None, 0) for p in self._processes)
                if failed or time.monotonic() > deadline:
                    raise ContenderFailed(f"did not start: {self.log()}") from None
                continue
            channel.settimeout(COMMAND_TIMEOUT_S)
            self._streams.append(channel.makefile("rw"))
        self._listener.close()
        came = sorted((answer["rank"], answer["size"]) for answer in map(self._read, self._streams))
        if came != [(rank, self.size) for rank in range(self.size)]:
            raise ContenderFailed(f"{self.size} ranks were to meet; they say (rank, size): {came}")

    def _read(self, stream: Any) -> Any:
        try:
            line = stream.readline()
        except OSError as error:
            raise ContenderFailed(f"a rank did not answer: {error}: {self.log()}") from error
        if not line:
            raise ContenderFailed(f"a rank ended: {self.log()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ContenderFailed(answer["error"])
        return answer

    def command(self, do: str, **arguments: Any) -> Turn:
        """Runs a command on all ranks at once; of every repetition and call, the slowest rank's time."""
        if self.failed:
            raise ContenderFailed(self.failed)
        try:
            ranks = self._ask_all(json.dumps({"do": do, **arguments}))
        except ContenderFailed as error:
            self.failed = str(error)
            raise
        repetitions = [max(times) for times in zip(*(rank["repetitions"] for rank in ranks))]
        return Turn(repetitions, [max(times) for times in zip(*(rank["calls"] for rank in ranks))])

    def _ask_all(self, line: str) -> List[Dict[str, List[float]]]:
        for stream in self._streams:
            try:
                print(line, file=stream, flush=True)
            except OSError as error:
                raise ContenderFailed(f"a rank ended: {self.log()}") from error
        return [self._read(stream) for stream in self._streams]

    def log(self) -> str:
        """The end of what the processes printed."""
        self._log.flush()
        self._log.seek(0)
        return self._log.read()[-3000:].strip() or "it printed nothing"

    def dismiss(self) -> None:
        """Tells the ranks to end, without waiting for it."""
        self._listener.close()
        for stream in self._streams:
            try:
                print(json.dumps({"do": "quit"}), file=stream, flush=True)
            except OSError:
                pass

    def close(self) -> None:
        """Ends the ranks."""
        self.dismiss()
        # Who never came, or lost a rank, will not say goodbye.
        patience = 20.0 if len(self._streams) == self.size and not self.failed else 1.0
        for process in self._processes:
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
        self._log.close()
        self._directory.cleanup()
