# SPDX-License-Identifier: Apache-2.0
"""A GPU without a framework: memory and a stream, through the NVIDIA driver alone."""

from __future__ import annotations

import ctypes
from typing import Any, List, Optional

from horovod.common import nvidia

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


class CudaFailed(RuntimeError):
    """A call of the driver failed."""


class Gpu:
    """One GPU of this process, with a stream."""

    def __init__(self, device: int) -> None:
        self.device = device
        self._cuda = _open_driver()
        context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
        self._call("cuCtxPushCurrent_v2", context)
        self._call(
            "cuStreamCreateWithPriority", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING), ctypes.c_int(0)
        )
        self.stream: int = stream.value or 0
        self._sources: List[Any] = []  # of copies under way

    def name(self) -> str:
        """E.g. NVIDIA H200."""
        text = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", text, ctypes.c_int(len(text)), ctypes.c_int(self.device))
        return text.value.decode(errors="replace")

    def uuid(self) -> str:
        """The same for all processes that use this GPU."""
        return _uuid(self._cuda, self.device)

    def reaches(self, uuid: str) -> Optional[bool]:
        """Whether this GPU can read that one's memory; None if this process does not see that one."""
        for other in range(gpus_here()):
            if _uuid(self._cuda, other) == uuid:
                can = ctypes.c_int(1)
                if other != self.device:
                    self._call(
                        "cuDeviceCanAccessPeer",
                        ctypes.byref(can),
                        ctypes.c_int(self.device),
                        ctypes.c_int(other),
                    )
                return bool(can.value)
        return None

    def allocate(self, count: int) -> int:
        """The address of memory for so many float32, which stays for the rest of the process."""
        address = ctypes.c_ulonglong()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(count, 1) * 4))
        return address.value

    def fill(self, address: int, value: float, count: int) -> None:
        """In the order of the stream."""
        source = (ctypes.c_float * count)(*([value] * count))
        self._sources.append(source)
        self._copy(address, ctypes.addressof(source), count * 4)

    def read(self, address: int, count: int) -> List[float]:
        """Waits for the stream, and for nothing else."""
        out = (ctypes.c_float * count)()
        self._copy(ctypes.addressof(out), address, count * 4)
        self.synchronize()
        return list(out)

    def synchronize(self) -> None:
        """Waits for the stream."""
        self._call("cuStreamSynchronize", ctypes.c_void_p(self.stream))
        self._sources.clear()

    def _copy(self, to: int, source: int, nbytes: int) -> None:
        addresses = ctypes.c_ulonglong(to), ctypes.c_ulonglong(source)
        self._call("cuMemcpyAsync", *addresses, ctypes.c_size_t(nbytes), ctypes.c_void_p(self.stream))

    def _call(self, name: str, *arguments: Any) -> None:
        _checked(self._cuda, name, *arguments)


def gpus_here() -> int:
    """How many GPUs this process sees; 0 without a driver."""
    try:
        count = ctypes.c_int()
        _checked(_open_driver(), "cuDeviceGetCount", ctypes.byref(count))
    except (OSError, CudaFailed):
        return 0
    return count.value


def _uuid(cuda: ctypes.CDLL, device: int) -> str:
    raw = ctypes.create_string_buffer(16)
    _checked(cuda, "cuDeviceGetUuid", raw, ctypes.c_int(device))
    return raw.raw.hex()


def _open_driver() -> ctypes.CDLL:
    cuda = ctypes.CDLL(nvidia.driver_path())
    _checked(cuda, "cuInit", ctypes.c_uint(0))
    return cuda


def _checked(cuda: ctypes.CDLL, name: str, *arguments: Any) -> None:
    result = getattr(cuda, name)(*arguments)
    if result != 0:
        raise CudaFailed(f"{name}: error {result} of the driver")
