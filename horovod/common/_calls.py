# SPDX-License-Identifier: Apache-2.0
"""The engine's calls of every step, as functions of the interpreter itself: csrc/glue/python/calls.cc.

They take a tenth of a microsecond where ctypes takes one or two. Where an interpreter does not have what they
need (none is known, but for those without a GIL), or HOROVOD_CALLS=ctypes asks for it, the same names are
what stands below: ctypes, and NotImplemented from those who may say so; who calls them goes the general way.

They are bound on first use (`_calls.wait(handle)`), so that importing this package does not load the engine.
"""

from __future__ import annotations

import ctypes
import os
import sysconfig
from typing import Any, Callable, Dict

from horovod.common import _native
from horovod.common.abandoned import abandon
from horovod.common.constants import OK, TIMEOUT
from horovod.common.exceptions import raise_for

# A blocked wait returns this often to let Python handle signals (Ctrl-C).
WAIT_SLICE_S = 0.2


def _unusual(*_: Any) -> Any:
    return NotImplemented


def _start_standing(requests: int, count: int, flags: int) -> int:
    handle: int = _native.lib().hvd_submit(requests, count, flags, None, None, None)
    if handle < 0:
        raise_for(handle, _native.last_error())
    return handle


def _until_done(wait: Callable[[int, float], int], handle: int) -> None:
    status = wait(handle, WAIT_SLICE_S)
    while status == TIMEOUT:
        status = wait(handle, WAIT_SLICE_S)
    if status != OK:
        raise_for(status, _native.last_error())


def _wait(handle: int) -> None:
    _until_done(_native.lib().hvd_wait, handle)


def _finish(handle: int) -> None:
    _until_done(_native.lib().hvd_finish, handle)


def _poll(handle: int) -> int:
    done: int = _native.lib().hvd_poll(handle)
    return done


def _release(handle: int) -> None:
    _native.lib().hvd_release(handle)


_BY_CTYPES: Dict[str, Callable[..., Any]] = {
    "run_array": _unusual,  # (array, output, kind, prefix, name, process_set, op, prescale, postscale, root)
    "start_array": _unusual,
    "run_arrays": _unusual,  # the same of two sequences
    "start_arrays": _unusual,
    "run_memory": _unusual,  # (keep, dtype, shape, input, output, kind, prefix, ..., root, device, stream)
    "start_standing": _start_standing,  # (address of the requests, how many, flags)
    "wait": _wait,  # until done; raises what went wrong
    "finish": _finish,  # and then forgets the handle
    "poll": _poll,  # 1 done, 0 not yet, negative: an unknown handle
    "release": _release,
    "new_flight": _unusual,  # hooks of gradients, see csrc/glue/python/gradients.h; those who have no flight
    "open_flight": _unusual,  # need none of the others
    "new_gradient": _unusual,
    "prepare_gradient": _unusual,
    "send_gradients": _unusual,
    "finish_gradients": _unusual,
    "take_gradients": _unusual,
}


def _native_calls() -> Dict[str, Callable[..., Any]]:
    if os.environ.get("HOROVOD_CALLS") == "ctypes" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return {}
    _native.lib()
    make = ctypes.PyDLL(_native.library_path()).hvd_python_calls  # called with the GIL
    make.argtypes, make.restype = (ctypes.py_object, ctypes.py_object), ctypes.c_void_p
    made = make(raise_for, abandon)
    return dict(ctypes.cast(made, ctypes.py_object).value) if made else {}


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in _BY_CTYPES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    globals().update({**_BY_CTYPES, **_native_calls()})
    bound: Callable[..., Any] = globals()[name]
    return bound
