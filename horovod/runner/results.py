# SPDX-License-Identifier: Apache-2.0
"""A function to every rank, results and exceptions back: what travels through the job's store.

The side that wants a function called:                 each rank (horovod.runner.run_task, a Spark task):

    publish(store, func, args, kwargs)
                                                           call_published(open_store, rank)
    collect(store, size)           # in rank order
    raise_remote_error(store, rank, host)    # what that rank raised, with its traceback as the cause

All of it is pickled, but it only travels between processes that proved the job's secret to each other;
nothing is unpickled from anybody else.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

if TYPE_CHECKING:
    from horovod.rendezvous.store import StoreClient
    from horovod.rendezvous.store_server import StoreServer

_FUNCTION = "run/function"
_RESULT = "run/result/{}"
_ERROR = "run/error/{}"


class RemoteTraceback(Exception):
    """Carries the traceback of the rank where the exception happened; the cause of what run() raises."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(text)

    def __str__(self) -> str:
        return "\n" + self.text


# ------------------------------------------------------------------------------ the side that asks


def pickled(func: Callable[..., Any], args: Sequence[Any], kwargs: Optional[Dict[str, Any]]) -> bytes:
    """A call as it travels; raises ValueError for what cannot."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps((func, tuple(args), dict(kwargs or {}))))
    except Exception as error:
        raise ValueError(
            f"cannot send the function to the workers: {error}. Open files, locks and sockets cannot travel: "
            "create them inside the function"
        ) from error


def publish(store: StoreServer, call: bytes) -> None:
    """Leaves a pickled call in the store for every rank to fetch."""
    store.set(_FUNCTION, call)


def collect(store: StoreServer, size: int) -> List[Any]:
    """The return values that the ranks left in the store, in rank order."""
    import cloudpickle

    results = []
    for rank in range(size):
        value = store.pop(_RESULT.format(rank))
        if value is None:
            raise RuntimeError(f"rank {rank} ended without returning a result (did the function exit?)")
        results.append(cloudpickle.loads(value))
    return results


def raise_remote_error(store: StoreServer, rank: int, host: str) -> None:
    """Raises the exception of a failed rank, if it left one; returns otherwise."""
    import cloudpickle

    left = store.pop(_ERROR.format(rank))
    if left is None:
        return
    error, text = cloudpickle.loads(left)
    heading = f"rank {rank} on host {host} raised:\n\n{text}"
    if isinstance(error, BaseException):
        raise error from RemoteTraceback(heading)
    raise RuntimeError(heading)


# ---------------------------------------------------------------------------- the ranks' side


def call_published(
    open_store: Callable[[], StoreClient],
    rank: int,
    on_error: Callable[[BaseException], None] = lambda error: None,
) -> int:
    """Fetches the function, calls it, leaves the result or the exception. Returns the exit status.

    Args:
        open_store: connects anew each time it is called: the function may run for days.
        rank: whose result it is.
        on_error: called with what the function raised, before anything else is done about it.
    """
    import cloudpickle

    with open_store() as store:
        call = store.get(_FUNCTION)
    try:
        function, args, kwargs = cloudpickle.loads(call)
        key, value = _RESULT, cloudpickle.dumps(function(*args, **kwargs))
    except Exception as error:
        on_error(error)
        text = traceback.format_exc()
        print(text, end="", file=sys.stderr, flush=True)
        key, value = _ERROR, cloudpickle.dumps((_portable(error), text))
    with open_store() as store:
        store.set(key.format(rank), value)
    return 0 if key is _RESULT else 1


def _portable(error: BaseException) -> Any:
    """The exception, or None if it cannot travel (its text always can)."""
    import cloudpickle

    try:
        cloudpickle.loads(cloudpickle.dumps(error))
        return error
    except Exception:
        return None
