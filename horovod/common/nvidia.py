# SPDX-License-Identifier: Apache-2.0
"""Where NVIDIA's libraries are. Looking opens files but starts nothing: no driver, no context."""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import os
import re
from typing import List, NamedTuple, Optional, Tuple

NCCL = "libnccl.so.2"
LISTENER = "NVTX_INJECTION64_PATH"  # set by a profiler for those it started: where its own library is


class Library(NamedTuple):
    """A library that can be used.

    Attributes:
        path: of its file, or its name if the system's loader finds it.
        origin: who brought it, e.g. "loaded by the framework".
        version: e.g. (2, 28, 9); empty if it cannot be asked.
    """

    path: str
    origin: str
    version: Tuple[int, ...]

    def text(self) -> str:
        """E.g. 2.28.9."""
        return ".".join(str(part) for part in self.version)


def nccl_wheel() -> str:
    """The file of the nvidia-nccl-cu* wheel of this Python; "" if there is none."""
    # CUDA 13's wheels share a folder, those before have one each.
    return _in_wheels("nccl/lib/libnccl.so.2", "cu*/lib/libnccl.so.2")


def nvtx(given: str, disabled: bool) -> str:
    """The library whose ranges collectives shall be; "" for none: nobody listens, or it is not there.

    Args:
        given: HOROVOD_NVTX_LIBRARY.
        disabled: HOROVOD_DISABLE_NVTX_RANGES.
    """
    if disabled or given or LISTENER not in os.environ:
        return "" if disabled else given
    wheel = _in_wheels("cu*/lib/libnvtx3interop.so.1", "nvtx/lib/libnvToolsExt.so.1")
    for path in (wheel, "libnvtx3interop.so.1", "libnvToolsExt.so.1"):
        try:
            if path:
                ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
                return path
        except OSError:
            pass
    return ""


def _in_wheels(*patterns: str) -> str:
    """A file of NVIDIA's wheels of this Python; "" if there is none."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return ""
    for folder in (spec and spec.submodule_search_locations) or ():
        for pattern in patterns:
            found = sorted(glob.glob(os.path.join(folder, pattern)))
            if found:
                return found[-1]
    return ""


def _mapped(name: str) -> str:
    """The file of a library that this process has loaded already."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                if os.path.basename(path).startswith(name):
                    return f"/{path}"
    except OSError:
        pass
    return ""


def nccl() -> Optional[Library]:
    """The NCCL that the engine would use; None if there is none."""
    places: List[Tuple[str, str]] = [
        (_mapped(NCCL), "loaded by the framework"),
        (os.environ.get("HOROVOD_NCCL_LIBRARY", ""), "HOROVOD_NCCL_LIBRARY"),
        (nccl_wheel(), "the nvidia-nccl wheel"),
        (NCCL, "the system's"),
    ]
    for path, origin in places:
        if path:
            version = _nccl_version(path)
            if version is not None:
                return Library(path, origin, version)
    return None


@functools.cache
def _nccl_version(path: str) -> Optional[Tuple[int, ...]]:
    try:
        library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
        code = ctypes.c_int()
        if library.ncclGetVersion(ctypes.byref(code)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    number = code.value
    return (number // 10000, number // 100 % 100, number % 100)


def driver_path() -> str:
    """The driver's library, which may not be there."""
    return os.environ.get("HOROVOD_CUDA_LIBRARY") or "libcuda.so.1"


def driver() -> Optional[Library]:
    """The NVIDIA driver; its version is that of the kernel module, e.g. (580, 95, 5), where it says so."""
    path = driver_path()
    try:
        ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    except OSError:
        return None
    version: Tuple[int, ...] = ()
    try:
        with open("/proc/driver/nvidia/version") as file:
            found = re.search(r"\b(\d+)\.(\d+)(?:\.(\d+))?\b", file.readline())
            version = tuple(int(part) for part in found.groups() if part) if found else ()
    except OSError:
        pass
    return Library(path, "the system's", version)
