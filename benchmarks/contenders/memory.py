# SPDX-License-Identifier: Apache-2.0
"""Every rank copies its own buffer: what the memory gives."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from benchmarks.contenders.adapter import Adapter


class Memcpy(Adapter):
    """np.copyto between two buffers that have been touched."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.target = np.zeros(0, np.float32)

    def buffer(self, count: int) -> Any:
        self.target = np.full(count, 1, np.float32)
        return np.full(count, self.size, np.float32)

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        np.copyto(self.target, data)
        return self.target

    def barrier(self) -> None:
        pass
