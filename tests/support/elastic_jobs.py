# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs that tests start, hurt, and watch.

with ElasticRun(tmp_path, ["localhost:2"], "-np", "2", "--min-np", "1", script=["--steps", "40"]) as job:
    job.wait_for("train", size=2)          # until a worker has said that
    job.kill(rank=1)
    job.finish()                           # the results of all ranks
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from launching import HOROVODRUN, ROOT, default_signals, environment

TRAIN = os.path.join(ROOT, "tests", "runner", "scripts", "elastic_train.py")
_LINE = re.compile(r"(\{.*\})\s*$")


class ElasticRun:
    """horovodrun with a discovery script whose hosts the test can change."""

    def __init__(
        self,
        folder: Any,
        hosts: List[str],
        *words: str,
        script: Optional[List[str]] = None,
        command: Optional[List[str]] = None,
        env: Optional[Dict[str, str]] = None,
    ) -> None:
        self.folder = str(folder)
        self.events_file = os.path.join(self.folder, "events.jsonl")
        self.said: List[Dict[str, Any]] = []
        self.errors: List[str] = []
        self._changed = threading.Condition()
        self.hosts(*hosts)
        program = command or [sys.executable, TRAIN, *(script or [])]
        self.process = subprocess.Popen(
            [*HOROVODRUN, "--host-discovery-script", f"cat {self.folder}/hosts", "--elastic-events",
             self.events_file, *words, *program],
            text=True, env={**environment(), **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=default_signals,
        )  # fmt: skip
        self._readers = [
            threading.Thread(target=self._read, args=(stream, error), daemon=True)
            for stream, error in ((self.process.stdout, False), (self.process.stderr, True))
        ]
        for reader in self._readers:
            reader.start()

    def hosts(self, *lines: str) -> None:
        """From now on the discovery script prints these lines."""
        path = os.path.join(self.folder, "hosts")
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
        os.replace(f"{path}.new", path)

    def _read(self, stream: Any, error: bool) -> None:
        for line in stream:
            with self._changed:
                found = _LINE.search(line)
                if error or not found:
                    self.errors.append(line.rstrip("\n"))
                else:
                    self.said.append(json.loads(found[1]))
                self._changed.notify_all()

    def matching(self, event: str, **values: Any) -> List[Dict[str, Any]]:
        """What workers have said so far."""
        wanted = dict(values, event=event).items()
        return [one for one in self.said if all(one.get(name) == value for name, value in wanted)]

    def wait_for(self, event: str, count: int = 1, seconds: float = 60, **values: Any) -> Dict[str, Any]:
        """The newest of at least `count` things that were said."""
        self._wait(lambda: len(self.matching(event, **values)) >= count, seconds, (event, values))
        return self.matching(event, **values)[-1]

    def wait_for_line(self, text: str, seconds: float = 60) -> None:
        """Waits until the launcher or a worker has printed this."""
        self._wait(lambda: any(text in line for line in self.errors), seconds, text)

    def wait_for_steps(self, more: int = 3, seconds: float = 60) -> None:
        """Waits until that many more steps were done."""
        before = len(self.matching("step"))
        self._wait(lambda: len(self.matching("step")) >= before + more, seconds, f"{more} more steps")

    def _wait(self, ready: Any, seconds: float, what: Any) -> None:
        deadline = time.monotonic() + seconds
        with self._changed:
            while not ready():
                left = deadline - time.monotonic()
                over = self.process.poll() is not None and not any(one.is_alive() for one in self._readers)
                if left <= 0 or over:
                    raise AssertionError(f"waited for {what}; {self.text()}")
                self._changed.wait(min(left, 1.0))

    def newest(self) -> List[Dict[str, Any]]:
        """What the ranks of the newest generation have said of it so far."""
        said = self.matching("train")
        newest = max(one["generation"] for one in said)
        return [one for one in said if one["generation"] == newest]

    def wait_for_hosts(self, *hosts: str, seconds: float = 60) -> None:
        """Waits until a new world is on these hosts; one that has two ranks is given twice."""
        self._wait(lambda: sorted(one["host"] for one in self.newest()) == sorted(hosts), seconds, hosts)

    def wait_for_at_most(self, ranks: int, host: str, seconds: float = 60) -> None:
        """Waits until the newest world has no more ranks than that on a host."""

        def few() -> bool:
            return sum(one["host"] == host for one in self.newest()) <= ranks

        self._wait(few, seconds, f"at most {ranks} ranks on {host}")

    def world(self) -> Dict[int, int]:
        """The process of each rank of the newest generation."""
        return {one["rank"]: one["pid"] for one in self.newest()}

    def kill(self, *ranks: int, number: int = signal.SIGKILL) -> List[int]:
        """Signals the processes that have these ranks; returns their ids."""
        world = self.world()
        for rank in ranks:
            os.kill(world[rank], number)
        return [world[rank] for rank in ranks]

    def finish(self, seconds: float = 90) -> List[Dict[str, Any]]:
        """Waits for the job's end, which must be a success; the results by rank."""
        assert self.end(seconds) == 0, self.text()
        return sorted(self.matching("result"), key=lambda one: one["rank"])

    def end(self, seconds: float = 90) -> int:
        """Waits for the job's end and returns its exit status."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"does not end within {seconds} s; {self.text()}") from None
        for reader in self._readers:
            reader.join(60)
        return code

    def events(self, kind: Optional[str] = None) -> List[Dict[str, Any]]:
        """What the launcher wrote for machines."""
        with open(self.events_file, encoding="utf-8") as file:
            found = [json.loads(line) for line in file]
        return [one for one in found if kind in (None, one["event"])]

    def text(self) -> str:
        """Everything that was printed."""
        return "\n".join([*self.errors, *map(str, self.said)])

    def __enter__(self) -> ElasticRun:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def check_results(results: List[Dict[str, Any]], size: Optional[int] = None) -> None:
    """All ranks have the sums of a training in which no sample was lost or seen twice."""
    assert results, "nobody has finished"
    assert size is None or len(results) == size, results
    for one in results:
        samples = 12 * one["steps"]
        assert one["samples"] == samples and one["total"] == samples * (samples - 1) / 2, one
