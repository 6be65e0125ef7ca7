# SPDX-License-Identifier: Apache-2.0
"""Loads the engine's library and declares the C header's structures and functions for ctypes.

The declarations repeat csrc/include/horovod/core.h; tests/common/test_native.py compares the two.
"""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, List, Optional, Tuple

API_VERSION = 5

_INT32_P = POINTER(c_int32)


class World(ctypes.Structure):
    """hvd_world: who is in the job."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("rank", c_int32),
        ("size", c_int32),
        ("n_hosts", c_int32),
        ("generation", c_uint32),
        ("host_of_rank", _INT32_P),
        ("host_names", POINTER(c_char_p)),
        ("shm_fd", c_int32),
        ("doorbell_fds", _INT32_P),
    ]


class Link(ctypes.Structure):
    """hvd_link: a planned or open connection to another rank."""

    _fields_ = [
        ("kind", c_int32),
        ("peer", c_int32),
        ("process_set", c_int32),
        ("hop", c_int32),
        ("dial", c_int32),
        ("fd", c_int32),
        ("key", ctypes.c_uint8 * 32),
    ]


class Request(ctypes.Structure):
    """hvd_request: one tensor of one collective. Addresses are plain integers."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("name", c_void_p),
        ("input", c_void_p),
        ("output", c_void_p),
        ("shape", c_void_p),
        ("splits", c_void_p),
        ("prescale", c_double),
        ("postscale", c_double),
        ("ndim", c_int32),
        ("dtype", c_int32),
        ("reduce_op", c_int32),
        ("root", c_int32),
        ("process_set", c_int32),
        ("n_splits", c_int32),
        ("device", c_int32),
        ("priority", c_int32),
        ("ready_event", c_void_p),
        ("stream", c_void_p),
        ("wire_dtype", c_int32),
    ]
    keep: Tuple[Any, ...]  # what the addresses point into


class Output(ctypes.Structure):
    """hvd_output: one result of a completed submission."""

    _fields_ = [
        ("data", c_void_p),
        ("shape", POINTER(c_int64)),
        ("splits", POINTER(c_int64)),
        ("ndim", c_int32),
        ("n_splits", c_int32),
        ("value", c_int64),
    ]

    def shape_tuple(self) -> Tuple[int, ...]:
        """The output's shape."""
        return tuple(self.shape[: self.ndim]) if self.ndim else ()

    def splits_list(self) -> List[int]:
        """Alltoall: rows received from each member."""
        return list(self.splits[: self.n_splits]) if self.n_splits else []


ALLOC_FN = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_int32, POINTER(c_int64), c_int32)
DONE_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_int32, c_char_p)
WHERE_FN = ctypes.CFUNCTYPE(c_int32, POINTER(ctypes.c_char), c_int32)

# name: (result, arguments). Addresses are passed as c_void_p: ctypes converts an int faster than a typed
# pointer, and every caller has an int.
_FUNCTIONS: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "hvd_plan_links": (c_int32, (POINTER(World), _INT32_P, c_int32, c_int32, POINTER(Link), c_int32)),
    "hvd_shm_create": (c_int32, (c_int32,)),
    "hvd_doorbell_create": (c_int32, ()),
    "hvd_api_version": (c_int32, ()),
    "hvd_configure": (c_int32, (c_char_p, c_char_p)),
    "hvd_start": (c_int32, (POINTER(World), POINTER(Link), c_int32)),
    "hvd_stop": (c_int32, (c_char_p,)),
    "hvd_is_running": (c_int32, ()),
    "hvd_abort": (c_int32, (c_char_p,)),
    "hvd_check": (c_int32, ()),
    "hvd_mpi_attach": (c_int32, (c_char_p, c_uint64)),
    "hvd_rank": (c_int32, ()),
    "hvd_size": (c_int32, ()),
    "hvd_local_rank": (c_int32, ()),
    "hvd_local_size": (c_int32, ()),
    "hvd_cross_rank": (c_int32, ()),
    "hvd_cross_size": (c_int32, ()),
    "hvd_is_homogeneous": (c_int32, ()),
    "hvd_add_process_set": (c_int32, (_INT32_P, c_int32)),
    "hvd_attach_links": (c_int32, (POINTER(Link), c_int32)),
    "hvd_remove_process_set": (c_int32, (c_int32,)),
    "hvd_process_set_ranks": (c_int32, (c_int32, _INT32_P, c_int32)),
    "hvd_process_set_ids": (c_int32, (_INT32_P, c_int32)),
    "hvd_submit": (c_int64, (c_void_p, c_int32, c_uint32, c_void_p, c_void_p, c_void_p)),
    "hvd_run": (c_int32, (c_void_p, c_int32, c_double, c_void_p)),
    "hvd_call": (c_int64, (c_void_p, c_int32, c_double)),
    "hvd_poll": (c_int32, (c_int64,)),
    "hvd_wait": (c_int32, (c_int64, c_double)),
    "hvd_finish": (c_int32, (c_int64, c_double)),
    "hvd_wait_stream": (c_int32, (c_int64, c_void_p, c_double)),
    "hvd_copy_output": (c_int32, (c_int64, c_int32, c_void_p, c_void_p)),
    "hvd_result": (c_int32, (c_int64, c_int32, c_void_p)),
    "hvd_take": (c_void_p, (c_int64, c_int32)),
    "hvd_allocate": (c_void_p, (c_int64,)),
    "hvd_free": (None, (c_void_p,)),
    "hvd_release": (None, (c_int64,)),
    "hvd_last_error": (c_char_p, ()),
    "hvd_timeline_start": (c_int32, (c_char_p, c_int32)),
    "hvd_timeline_stop": (c_int32, ()),
    "hvd_timeline_active": (c_int32, ()),
    "hvd_copied": (None, (c_char_p, c_int32, c_double, c_double)),
    "hvd_metrics": (c_int64, (c_char_p, c_int64)),
    "hvd_now": (c_int64, (c_char_p, c_int64)),
    "hvd_recent": (c_int64, (c_char_p, c_int64)),
    "hvd_mark": (c_int32, (c_char_p,)),
    "hvd_device_report": (c_int64, (c_char_p, c_int64)),
    "hvd_set_where": (None, (WHERE_FN,)),
}

_library: Optional[ctypes.CDLL] = None
_loading = threading.Lock()


def library_path() -> str:
    """Where the engine's library is; HOROVOD_CORE_LIBRARY points to another build of it."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return os.environ.get("HOROVOD_CORE_LIBRARY") or os.path.join(package, "_lib", "libhorovod_core.so")


def lib() -> ctypes.CDLL:
    """The engine's library, loaded on first use, with all argument types declared."""
    if _library is not None:
        return _library
    return _load()


def _load() -> ctypes.CDLL:
    global _library
    with _loading:
        if _library is not None:
            return _library
        path = library_path()
        if not os.path.exists(path):
            raise ImportError(
                f"Horovod's engine is not built: {path} does not exist. Install Horovod with "
                "`pip install horovod`, or run `make build` in a source tree."
            )
        library = ctypes.CDLL(path)
        for name, (restype, argtypes) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = restype
            function.argtypes = argtypes
        version = library.hvd_api_version()
        if version != API_VERSION:
            raise ImportError(
                f"{path} speaks version {version} of the engine's interface, this package version "
                f"{API_VERSION}: they come from different builds. Reinstall Horovod."
            )
        _library = library
        return library


def last_error() -> str:
    """The reason of the calling thread's last failed call."""
    text = lib().hvd_last_error()
    return text.decode("utf-8", "replace") if text else "unknown error"
