# SPDX-License-Identifier: Apache-2.0
"""Every rank copies its own buffer: what the memory gives.

Large copies begin together and count until the last rank is done, as an allreduce does. Otherwise ranks that
outnumber the cores would copy one after the other, each with a core to itself while its clock runs.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from benchmarks.contenders.adapter import Adapter

LARGE = 1 << 20  # bytes; to meet takes microseconds, as long as to copy less
LINE = 8  # words a rank has for itself


class Memcpy(Adapter):
    """np.copyto between two buffers that have been touched."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.target = np.zeros(0, np.float32)
        path = os.path.join(os.path.dirname(os.environ["HVD_BENCH_SOCKET"]), "meetings")
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(file, 8 * LINE * self.size)
        self._meetings = np.frombuffer(mmap.mmap(file, 8 * LINE * self.size), np.int64)[::LINE]
        os.close(file)

    def buffer(self, count: int) -> Any:
        self.target = np.full(count, 1, np.float32)
        return np.full(count, self.size, np.float32)

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        np.copyto(self.target, data)
        if data.nbytes >= LARGE:
            self.barrier()
        return self.target

    def barrier(self) -> None:
        self._meetings[self.rank] += 1
        while self._meetings.min() < self._meetings[self.rank]:
            os.sched_yield()
