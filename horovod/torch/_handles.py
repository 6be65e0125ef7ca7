# SPDX-License-Identifier: Apache-2.0
"""Handles of asynchronous operations: small integers, valid until `synchronize` has returned the result."""

from __future__ import annotations

import itertools
from typing import Any, Dict, Protocol


class Pending(Protocol):
    """An operation under way."""

    def done(self) -> bool:
        """Whether `result` would return (or raise) at once."""

    def result(self) -> Any:
        """Waits and returns the output; raises if the operation failed. Called once."""


_table: Dict[int, Pending] = {}
_numbers = itertools.count(1)


def register(pending: Pending) -> int:
    """Gives the operation a number. The table keeps its tensors alive until `synchronize`."""
    handle = next(_numbers)
    _table[handle] = pending
    return handle


def poll(handle: int) -> bool:
    """Whether the operation has finished, so that `synchronize` will not block.

    Raises:
        ValueError: the handle is unknown or was synchronized before.
    """
    pending = _table.get(handle)
    if pending is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    return pending.done()


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation and returns its output; None for an unknown handle.

    Returns:
        One tensor; a tuple for grouped operations; (output, received_splits) for alltoall.

    Raises:
        HorovodInternalError: the ranks disagree about the operation, a peer died, or the job was shut down.
    """
    pending = _table.pop(handle, None)
    return None if pending is None else pending.result()


def forget_all() -> None:
    """Drops every handle and numbers from 1 again; called when the engine starts or stops."""
    global _numbers
    _table.clear()
    _numbers = itertools.count(1)
