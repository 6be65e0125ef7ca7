# SPDX-License-Identifier: Apache-2.0
"""What a worker may ask of a contender. An adapter says how; what it cannot do it leaves out."""

from __future__ import annotations

from typing import Any, Callable, List

import numpy as np


class Adapter:
    """One rank of a contender, connected to the others once it is made."""

    rank: int
    size: int

    def buffer(self, count: int) -> Any:
        """Ones, float32."""
        return np.ones(count, np.float32)

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        """The sum over all ranks, in place or not; blocks."""
        raise NotImplementedError

    def barrier(self) -> None:
        """Returns when all ranks are here."""
        raise NotImplementedError

    def start(self, data: Any, name: str) -> Any:
        """Begins an allreduce in place; returns a handle."""
        raise NotImplementedError

    def done(self, handle: Any) -> bool:
        """Whether it is complete."""
        raise NotImplementedError

    def finish(self, handles: List[Any]) -> None:
        """Waits for all of them."""
        raise NotImplementedError

    def many(self, tensors: List[Any]) -> None:
        """Reduces several tensors: a call each, then waits for all."""
        self.finish([self.start(tensor, f"g{i}") for i, tensor in enumerate(tensors)])

    def in_and_out(self, tensors: List[Any]) -> None:
        """Reduces several tensors that a compiled program is given, and gives back."""
        raise NotImplementedError

    def trainer(self, model: str) -> Callable[[], None]:
        """A function that makes one training step of a model of torch_models.py."""
        raise NotImplementedError

    def hook_seconds(self, model: str) -> float:
        """Processor time of one gradient hook, submission included."""
        raise NotImplementedError

    def observe(self, what: str) -> Callable[[], None]:
        """Switches "timeline", "metrics", "recorder", "reports" or, by "off", nothing on. Returns its end."""
        raise NotImplementedError

    def close(self) -> None:
        """The end."""
