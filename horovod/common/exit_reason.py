# SPDX-License-Identifier: Apache-2.0
"""Why this process leaves the job, so that the others can be told: "ValueError: bad batch (train.py:41)".

Known to whoever asks at the end of the process (atexit), without taking any hook that others may want:

- An exception that ended the script is in sys.last_value: the interpreter leaves it there and then prints it.
- sys.exit(3) leaves no trace at all. So `watch` lets sys.exit raise a SystemExit of ours. Python reads
  its `code` when nothing of the script is left on the stack; an exit that somebody caught is none.
  (`raise SystemExit(3)` goes unnoticed.)

A `finally: hvd.shutdown()` asks while the exception is still on its way (`in_flight`).
"""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import Any, NoReturn, Optional, Tuple, Type

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LONGEST = 300
_ORIGINAL_EXIT = sys.exit
_CODE: Any = SystemExit.__dict__["code"]

_noted: Optional[str] = None
_before: Any = None  # what sys.last_value held when the watch began: another failure's
_exit: Optional[str] = None  # "sys.exit(3) (train.py:41)", once it is what ends the process


def watch() -> None:
    """Begins to watch for the end of the process; any number of times."""
    global _before
    _before = getattr(sys, "last_value", None)
    if sys.exit is _ORIGINAL_EXIT:  # else it is ours already, or somebody else's whom we leave in peace
        sys.exit = _exit_noticed


def note(error: BaseException) -> None:
    """Whoever calls the user's code and catches what it raises says so here, if that ends the process."""
    global _noted
    _noted = describe(error)


def of_this_process() -> Optional[str]:
    """Why the process ends, asked at its end; None if all is well."""
    if _noted is not None:
        return _noted
    error = getattr(sys, "last_value", None)
    # In an interactive session every failed line is left there, and is no reason to end.
    if error is not None and error is not _before and not hasattr(sys, "ps1"):
        return describe(error)
    return _exit


def in_flight(consequences: Tuple[Type[BaseException], ...]) -> Optional[str]:
    """The exception that the caller is handling; None without one, or if others caused it."""
    error = sys.exc_info()[1]
    if error is None or isinstance(error, consequences):
        return None
    return describe(error)


def describe(error: BaseException) -> str:
    """ "ValueError: bad batch (train.py:41)": its first line, and the last line of the script involved."""
    text = str(error).strip().partition("\n")[0]
    shown = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{shown[:_LONGEST]}{_place(error.__traceback__)}"


def _place(traceback: Optional[TracebackType]) -> str:
    where = ""
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        if not name.startswith(_PACKAGE):
            where = f" ({os.path.basename(name)}:{traceback.tb_lineno})"
        traceback = traceback.tb_next
    return where


class _Exit(SystemExit):
    """A SystemExit that notices when it ends the process."""

    place = ""

    @property
    def code(self) -> Any:
        value = _CODE.__get__(self)
        if threading.current_thread() is threading.main_thread() and not _called_by_python():
            global _exit
            _exit = None if value in (None, 0) else f"sys.exit({value!r})"[:_LONGEST] + self.place
        return value

    @code.setter
    def code(self, value: Any) -> None:
        _CODE.__set__(self, value)


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"


def _called_by_python() -> bool:
    """Whether the reader of `code` is Python code: a handler that caught the exit."""
    try:
        sys._getframe(2)
        return True
    except ValueError:
        return False


def _exit_noticed(status: Any = None, /) -> NoReturn:
    """Exits the interpreter by raising SystemExit(status), as sys.exit does."""
    error = _Exit(status)
    caller = sys._getframe(1)
    error.place = f" ({os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno})"
    raise error
