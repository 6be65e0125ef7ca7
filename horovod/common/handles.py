# SPDX-License-Identifier: Apache-2.0
"""Calls under way, in the one table that all front ends share.

Users hold a number. It is valid from the asynchronous call until `synchronize` has returned its result; until
then the table keeps the `Handle` behind it, and with it the memory that the engine reads and writes.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict

from horovod.common import _calls, engine
from horovod.common.basics import basics


class Handle:
    """One call under way: its submission, the memory it uses, and how its result is made."""

    __slots__ = ("_collect", "_keep", "_submission")

    def __init__(self, submission: int, collect: Callable[[int], Any], keep: Any) -> None:
        """
        Args:
            submission: the engine's number of it; 0 for an empty group, which is done at once.
            collect: makes the result of the completed submission.
            keep: what the engine reads and writes.
        """
        self._submission = submission
        self._collect = collect
        self._keep = keep

    def done(self) -> bool:
        """Whether `result` would return, or raise, at once."""
        return self._submission == 0 or engine.poll(self._submission)

    def wait(self, submission: int) -> None:
        """Until the result can be used."""
        engine.wait(submission)

    def result(self) -> Any:
        """Waits and returns the output; raises if the operation failed. Not again, unless interrupted."""
        submission = self._submission
        if submission == 0:
            return self._collect(0)
        try:
            self.wait(submission)
        except KeyboardInterrupt:
            raise  # still under way: one may wait for it again
        except BaseException:
            engine.abandon(submission, self._keep)
            raise
        try:
            return self._collect(submission)
        finally:
            engine.release(submission)


class WrittenHandle(Handle):
    """A call whose result is an object that is there already, and is being written."""

    __slots__ = ("_result",)

    def __init__(self, submission: int, result: Any, keep: Any) -> None:
        self._submission = submission
        self._result = result
        self._keep = keep

    def result(self) -> Any:
        """As `Handle.result`."""
        try:
            _calls.finish(self._submission)
        except KeyboardInterrupt:
            raise  # still under way: one may wait for it again
        except BaseException:
            engine.abandon(self._submission, (self._keep, self._result))
            raise
        return self._result


table: Dict[int, Handle] = {}
_numbers = itertools.count(1)


def register(handle: Handle) -> int:
    """Gives a call under way its number."""
    if engine.abandoned:
        engine.sweep()
    number = next(_numbers)
    table[number] = handle
    return number


def is_known(handle: int) -> bool:
    """Whether it stands for a call that nobody has synchronized yet."""
    return handle in table


def poll(handle: int) -> bool:
    """Whether an asynchronous operation has finished, so that `synchronize` will not block.

    Raises:
        ValueError: the handle is unknown or was synchronized before.
    """
    found = table.get(handle)
    if found is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    return found.done()


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation and returns its result.

    Raises:
        ValueError: the handle is unknown or was synchronized before, or an argument was wrong.
        HorovodInternalError: the ranks disagree about the operation, a peer died, or the job was shut down.
    """
    found = table.pop(handle, None)
    if found is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    try:
        return found.result()
    except KeyboardInterrupt:
        table[handle] = found
        raise


def forget_all() -> None:
    """Drops every handle and numbers from 1 again."""
    global _numbers
    table.clear()
    _numbers = itertools.count(1)


basics.at_init(forget_all)
basics.at_shutdown(forget_all)
