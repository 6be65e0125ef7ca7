# SPDX-License-Identifier: Apache-2.0
"""Which dispatchers and workers of a tf.data service there are. Pure."""

from __future__ import annotations

from typing import Dict, Optional, Set


class ComputeRegistry:
    """Knows who has registered.

    Raises:
        ValueError: if there is nobody to register.
    """

    def __init__(self, dispatchers: int, workers_per_dispatcher: int) -> None:
        if dispatchers <= 0:
            raise ValueError(f"The number of dispatchers must be larger than 0: {dispatchers}")
        if workers_per_dispatcher <= 0:
            raise ValueError(
                f"The number of workers per dispatcher must be larger than 0: {workers_per_dispatcher}"
            )
        self._workers_per_dispatcher = workers_per_dispatcher
        self._addresses: Dict[int, str] = {}
        self._workers: Dict[int, Set[int]] = {number: set() for number in range(dispatchers)}

    def register_dispatcher(self, dispatcher_id: int, address: str) -> None:
        """A dispatcher says where it is; again is fine, elsewhere is not."""
        self._check(dispatcher_id)
        known = self._addresses.setdefault(dispatcher_id, address)
        if known != address:
            raise ValueError(
                f"Dispatcher with id {dispatcher_id} has already been registered under different address "
                f"{known}: {address}"
            )

    def register_worker(self, dispatcher_id: int, worker_id: int) -> None:
        """A worker says that it works for a dispatcher."""
        self._check(dispatcher_id)
        self._workers[dispatcher_id].add(worker_id)

    def dispatcher(self, dispatcher_id: int) -> Optional[str]:
        """Where a dispatcher is, once it has registered."""
        self._check(dispatcher_id)
        return self._addresses.get(dispatcher_id)

    def complete(self, dispatcher_id: int) -> bool:
        """Whether a dispatcher has all of its workers."""
        self._check(dispatcher_id)
        return len(self._workers[dispatcher_id]) >= self._workers_per_dispatcher

    def _check(self, dispatcher_id: int) -> None:
        if dispatcher_id not in self._workers:
            raise IndexError(f"Dispatcher id must be within [0..{len(self._workers) - 1}]: {dispatcher_id}")
