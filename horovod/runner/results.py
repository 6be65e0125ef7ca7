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
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

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


def collect(store: StoreServer, workers: Union[int, Iterable[str]]) -> List[Any]:
    """The return values that workers left in the store, in this order.

    Args:
        workers: how many ranks there are, or the names of an elastic job's workers.
    """
    import cloudpickle

    results = []
    for rank, worker in enumerate(range(workers) if isinstance(workers, int) else workers):
        value = store.pop(_RESULT.format(worker))
        if value is None:
            raise RuntimeError(f"rank {rank} ended without returning a result (did the function exit?)")
        results.append(cloudpickle.loads(value))
    return results


def raise_remote_error(store: StoreServer, rank: int, host: str, worker: str = "") -> None:
    """Raises the exception of a failed rank, if it left one; returns otherwise.

    Args:
        rank: below 0 if it never had one.
        worker: its name in an elastic job.
    """
    left = _error_of(store, worker or str(rank))
    if left is not None:
        _raise(rank, host, *left)


def raise_first_error(store: StoreServer, hosts: Sequence[str]) -> None:
    """The same where nobody says which rank failed: the first that left more than the echo of another's end.

    Args:
        hosts: of the ranks, in order.
    """
    from horovod.runner.supervision import WorkerFailure

    for rank, host in enumerate(hosts):
        left = _error_of(store, str(rank))
        if left is not None and not WorkerFailure(rank, host, 1, left[1].splitlines()).is_echo():
            _raise(rank, host, *left)


def _error_of(store: StoreServer, worker: str) -> Optional[Tuple[Any, str]]:
    """What call_published has left: the exception, or None if it cannot travel, and its traceback."""
    import cloudpickle

    left = store.pop(_ERROR.format(worker))
    return None if left is None else cloudpickle.loads(left)


def _raise(rank: int, host: str, error: Any, text: str) -> None:
    heading = f"{'a new worker' if rank < 0 else f'rank {rank}'} on host {host} raised:\n\n{text}"
    if isinstance(error, BaseException):
        raise error from RemoteTraceback(heading)
    raise RuntimeError(heading)


# ---------------------------------------------------------------------------- the ranks' side


def call_published(
    open_store: Callable[[], StoreClient],
    worker: Union[int, str],
    on_error: Callable[[BaseException], None] = lambda error: None,
) -> int:
    """Fetches the function, calls it, leaves the result or the exception. Returns the exit status.

    Args:
        open_store: connects anew each time it is called: the function may run for days.
        worker: whose result it is: a rank, or the name of an elastic job's worker.
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
        store.set(key.format(worker), value)
    return 0 if key is _RESULT else 1


def _portable(error: BaseException) -> Any:
    """The exception, or None if it cannot travel (its text always can)."""
    import cloudpickle

    try:
        cloudpickle.loads(cloudpickle.dumps(error))
        return error
    except Exception:
        return None
