# SPDX-License-Identifier: Apache-2.0
"""What `horovodrun --check` measured, as a file for `horovodrun --report`."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from typing import List, Tuple


@dataclasses.dataclass(frozen=True)
class Measured:
    """How long an allreduce takes on these hosts when nothing else runs."""

    ranks: int
    hosts: List[str]
    points: List[Tuple[int, float]]  # bytes and seconds, in order of size

    def seconds(self, nbytes: int) -> float:
        """What an allreduce of this many bytes should take, between and beyond what was measured."""
        first, last = self.points[0], self.points[-1]
        if nbytes <= first[0]:
            return first[1]
        if nbytes >= last[0]:
            return last[1] * nbytes / last[0]
        pairs = zip(self.points, self.points[1:])
        (x0, y0), (x1, y1) = next(pair for pair in pairs if nbytes <= pair[1][0])
        share = math.log(nbytes / x0) / math.log(x1 / x0)
        return float(y0 * (y1 / y0) ** share)

    def write(self, path: str) -> None:
        """Writes the file as a whole or not at all."""
        document = {
            "version": 1,
            "ranks": self.ranks,
            "hosts": self.hosts,
            "allreduce": [{"bytes": nbytes, "seconds": seconds} for nbytes, seconds in self.points],
        }
        beside = f"{path}.{os.getpid()}"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
        os.replace(beside, path)


def read(path: str) -> Measured:
    """Reads a file of `horovodrun --check --check-output`.

    Raises:
        ValueError: if it is something else.
    """
    with open(path, encoding="utf-8") as file:
        try:
            document = json.load(file)
            points = sorted((int(one["bytes"]), float(one["seconds"])) for one in document["allreduce"])
            measured = Measured(int(document["ranks"]), [str(host) for host in document["hosts"]], points)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is not a file of horovodrun --check --check-output: {error!r}"
            ) from error
    if not points or any(nbytes <= 0 or seconds <= 0 for nbytes, seconds in points):
        raise ValueError(f"{path} has no measurements; write it again with horovodrun --check --check-output")
    return measured
