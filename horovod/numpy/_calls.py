# SPDX-License-Identifier: Apache-2.0
"""From one description of a collective to its blocking, asynchronous and in-place forms.

A verb is written once, as a function that checks its arguments and returns a `Call`: the requests to submit
and what to do when they are complete. `blocking`, `asynchronous` and their in-place variants turn it into
what the user calls.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from horovod.common import engine
from horovod.common._native import Request


class Call(NamedTuple):
    """A collective that is ready to be submitted."""

    requests: Sequence[Request]
    finish: Callable[[int], Any]  # handle -> result, after success
    keep: Any = ()  # holds the arrays whose memory the engine uses
    owned: bool = False  # the results are in the engine's memory, so the handle is needed to fetch them
    group: bool = False


_pending: Dict[int, Call] = {}


def run(call: Call) -> Any:
    """Submits, waits, and returns the result."""
    requests = call.requests
    if not call.owned and len(requests) == 1 and not call.group:
        engine.run_released(requests[0], call.keep)
        return call.finish(0)
    if not requests:
        return call.finish(0)
    handle = engine.run(requests, (call.keep,))
    try:
        return call.finish(handle)
    finally:
        engine.release(handle)


def start(call: Call) -> int:
    """Submits, and returns a handle for `poll` and `synchronize`."""
    if not call.requests:
        raise ValueError("an asynchronous group needs at least one tensor")
    handle = engine.submit(call.requests, keep=(call.keep,), group=call.group)
    _pending[handle] = call
    return handle


def poll(handle: int) -> bool:
    """Whether an asynchronous operation is complete, so that `synchronize` returns at once."""
    return engine.poll(handle)


def synchronize(handle: int) -> Any:
    """Waits for an asynchronous operation and returns its result.

    Raises:
        ValueError: the handle is unknown or was synchronised before.
        HorovodInternalError: the operation failed.
    """
    call = _pending.get(handle)
    if call is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    try:
        engine.wait(handle)
        result = call.finish(handle)
    except KeyboardInterrupt:
        raise  # still running: the caller may synchronise again
    except BaseException:
        _forget(handle)
        raise
    _forget(handle)
    return result


def _forget(handle: int) -> None:
    _pending.pop(handle, None)
    engine.release(handle)


def forget_all() -> None:
    """The engine was stopped: no handle has a meaning any more."""
    _pending.clear()


Describe = Callable[..., Call]


def blocking(describe: Describe) -> Callable[..., Any]:
    """The form that returns the result."""

    def verb(*args: Any, **kwargs: Any) -> Any:
        return run(describe(*args, **kwargs))

    return _dress(verb, describe, "", "")


def asynchronous(describe: Describe) -> Callable[..., Any]:
    """The form that returns a handle."""

    def verb(*args: Any, **kwargs: Any) -> int:
        return start(describe(*args, **kwargs))

    return _dress(
        verb, describe, "_async", "Returns a handle for `synchronize` and `poll` instead of the result."
    )


def blocking_in_place(describe: Describe) -> Callable[..., Any]:
    """The form that writes the result into its argument and returns that."""

    def verb(*args: Any, **kwargs: Any) -> Any:
        return run(describe(*args, in_place=True, **kwargs))

    return _dress(verb, describe, "_", "Writes the result into the argument and returns it.")


def asynchronous_in_place(describe: Describe) -> Callable[..., Any]:
    """The form that writes the result into its argument and returns a handle."""

    def verb(*args: Any, **kwargs: Any) -> int:
        return start(describe(*args, in_place=True, **kwargs))

    return _dress(
        verb, describe, "_async_",
        "Writes the result into the argument; returns a handle for `synchronize` and `poll`.",
    )  # fmt: skip


def _dress(verb: Callable[..., Any], describe: Describe, suffix: str, extra: str) -> Callable[..., Any]:
    """Name, documentation and signature of the described verb, without the private in_place argument."""
    functools.update_wrapper(verb, describe)
    del verb.__wrapped__  # type: ignore[attr-defined]
    verb.__name__ = verb.__qualname__ = describe.__name__.lstrip("_") + suffix
    verb.__module__ = "horovod.numpy"
    if extra:
        verb.__doc__ = f"{inspect.getdoc(describe)}\n\n{extra}"
    signature = inspect.signature(describe)
    public: List[inspect.Parameter] = [p for n, p in signature.parameters.items() if n != "in_place"]
    verb.__signature__ = signature.replace(parameters=public, return_annotation=Any)  # type: ignore[attr-defined]
    return verb
