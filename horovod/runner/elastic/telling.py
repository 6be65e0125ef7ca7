# SPDX-License-Identifier: Apache-2.0
"""What happens in an elastic job, told as it happens: a line for people, a JSON line for machines.

    horovodrun: lost rank 3 on node7 ended with exit code 137 (ended by SIGKILL)
    {"time": 1767225600.123, "event": "lost", "text": "lost rank 3 ...", "rank": 3, "host": "node7", ...}

With --output-filename DIR both are also written to DIR/elastic.log and DIR/elastic.jsonl.
"""

from __future__ import annotations

import json
import os
import time
from typing import Callable, Optional

from horovod.runner.elastic.actions import Say
from horovod.runner.sinks import Sink, open_file


class Teller:
    """Tells people and files.

    Args:
        say: shows a line to people at a level of verbosity.
        folder: where to write the log and the JSON lines; None: nowhere.
        events: a file for the JSON lines, wherever the user wants it.
    """

    def __init__(
        self, say: Callable[[str, int], None], folder: Optional[str] = None, events: Optional[str] = None
    ) -> None:
        self._say = say
        self._log: Optional[Sink] = None
        self._lines = []
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
            self._log = open_file(os.path.join(folder, "elastic.log"))
            self._lines.append(open_file(os.path.join(folder, "elastic.jsonl")))
        if events:
            try:
                self._lines.append(open_file(events))
            except OSError as error:
                raise ValueError(f"cannot write to --elastic-events {events}: {error.strerror}") from error

    def tell(self, what: Say) -> None:
        """Tells one thing."""
        now = time.time()
        self._say(what.text, what.level)
        if self._log is not None:
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
            self._log.write(f"{stamp}.{int(now % 1 * 1000):03d} {what.text}\n".encode())
        line = json.dumps({"time": round(now, 3), "event": what.kind, "text": what.text, **what.facts})
        for sink in self._lines:
            sink.write(line.encode() + b"\n")

    def close(self) -> None:
        """Closes the files."""
        for sink in ([self._log] if self._log is not None else []) + self._lines:
            sink.close()
