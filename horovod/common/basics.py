# SPDX-License-Identifier: Apache-2.0
"""The life of the engine in this process: init, shutdown, who am I. One engine, shared by all front ends."""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from horovod.common import (
    _native,
    capabilities,
    config,
    engine,
    exit_reason,
    names,
    observation,
    reporter,
    stack_line,
    topology,
)
from horovod.common import process_sets as all_sets
from horovod.common.constants import Adasum, Average, Max, Min, Product, Sum
from horovod.common.exceptions import FORKED, NOT_INITIALIZED, HorovodInternalError, HostsUpdatedInterrupt
from horovod.common.process_sets import ProcessSet
from horovod.rendezvous import bootstrap, mpi_library, over_mpi
from horovod.rendezvous.detection import detect
from horovod.rendezvous.identity import Identity, subset
from horovod.rendezvous.readers import own

INIT_FAILED = "Horovod initialization failed. Please check log messages above for a more descriptive error."


class HorovodBasics:
    """Lifecycle and queries. `horovod.common.basics.basics` is the one instance all front ends use."""

    Average, Sum, Adasum, Min, Max, Product = Average, Sum, Adasum, Min, Max, Product

    def __init__(self, *unused: str) -> None:
        self._lock = threading.RLock()
        self._uses_mpi = False
        self._timeline_enabled = False
        self._atexit_registered = False
        self._static_sets: List[ProcessSet] = []
        self._sets: List[ProcessSet] = []
        self._on_init: List[Callable[[], None]] = []
        self._before_shutdown: List[Callable[[], None]] = []
        self._on_shutdown: List[Callable[[], None]] = []
        os.register_at_fork(after_in_child=self._after_fork)

    @property
    def MPI_LIB_CTYPES(self) -> ctypes.CDLL:
        """The engine's library."""
        return _native.lib()

    # ------------------------------------------------------------------------------ lifecycle --

    def init(self, comm: Any = None, process_sets: Union[None, str, Sequence[ProcessSet]] = None) -> None:
        """Joins the job this process was launched into, and starts the engine.

        Without a launcher the process becomes a world of one. A second call while initialised changes
        nothing.

        Args:
            comm: ranks that form this world, or an mpi4py communicator; by default all ranks of the job.
            process_sets: sets to register, the same on all ranks, or "dynamic" to add them later.

        Raises:
            HorovodInternalError: a rank is missing, died or does not fit; the text names it.
            ValueError: the process sets are wrong, or a setting is.
        """
        sets = _checked_sets(process_sets)
        with self._lock:
            if self.is_initialized():  # what is under way goes on
                all_sets.adopt(sets)
                return
            self._static_sets = sets
            self._start(comm, sets)
            try:
                self._register_static(sets)
            except HorovodInternalError as error:
                self.shutdown()
                raise ValueError(f"{INIT_FAILED} ({error})") from error
            for callback in self._on_init:
                callback()

    def _start(self, comm: Any, sets: List[ProcessSet]) -> None:
        identity = detect() if comm is None else _identity_from(comm)
        if topology.is_forked() and identity.meet is not None:
            raise RuntimeError(FORKED)

        def facts(me: Identity) -> Dict[str, Any]:
            for one in sets:
                if one.ranks is None:
                    one.ranks = _ranks_of_comm(one.mpi_comm, me.size)
            return {"process_sets": [one.ranks for one in sets]}

        names.reset()
        reporter.start()
        try:
            topology.set_world(bootstrap.start(identity, facts))
        except HorovodInternalError as error:
            if bootstrap.SETS_DIFFER in str(error):  # a wrong argument rather than a failed job
                raise ValueError(f"{INIT_FAILED} ({error})") from error
            raise
        if identity.worker:  # its driver gives out the numbers only now, and anew for each world
            os.environ.update(own.variables(topology.known()._asdict()))
        self._uses_mpi = "mpi" in identity.launcher.lower()
        self._timeline_enabled = bool(config.get("timeline"))
        stack_line.install()
        exit_reason.watch()
        all_sets.on_init(self.size(), bool(config.get("dynamic_process_sets")))
        if not self._atexit_registered:
            self._atexit_registered = True
            atexit.register(self._end)

    def _register_static(self, sets: List[ProcessSet]) -> None:
        for number, one in enumerate(sets):
            try:
                all_sets.make_again([one])
            except FileExistsError:
                raise ValueError(
                    f"Horovod could not be initialized because process_sets entry number {number} is a "
                    f"duplicate: {one}"
                ) from None
            except ValueError as error:
                self.shutdown()
                raise ValueError(f"{INIT_FAILED} ({error})") from error

    def shutdown(self) -> None:
        """Leaves the job: all ranks stop, whatever is outstanding fails. A later `init` starts anew.

        Called while an exception is on its way (`finally: hvd.shutdown()`), it tells the others of that.
        """
        self._stop(exit_reason.in_flight((HorovodInternalError, HostsUpdatedInterrupt)))

    def reset(self) -> None:
        """Leaves the world and joins the next one, with the process sets of this one: for elastic jobs."""
        sets = all_sets.remembered() or self._sets
        static = [one for one in sets if one in self._static_sets]
        added = [one for one in sets if one not in static]
        self._sets = sets  # if the next world fails while it forms, the one after has them too
        self.shutdown()
        self.init(process_sets=static)
        all_sets.make_again(added)

    def _end(self) -> None:
        """At the end of the process: says why it ends, unless all is well."""
        self._stop(exit_reason.of_this_process())

    def _stop(self, reason: Optional[str]) -> None:
        with self._lock:
            if not self.is_initialized():
                return
            if reason is None:  # else nothing is worth waiting for, and the others may wait for this rank
                self._finish_first()
            topology.clear()
            stack_line.remove()
            _native.lib().hvd_stop(reason.encode("utf-8", "replace") if reason else None)
            engine.forget_all()
            names.reset()
            all_sets.on_shutdown()
            for callback in self._on_shutdown:
                callback()

    def _finish_first(self) -> None:
        for callback in self._before_shutdown:
            try:
                callback()
            except Exception as error:  # of an operation that failed: whoever uses its result is told
                logging.getLogger("horovod").debug("before shutdown: %s", error)

    def at_init(self, callback: Callable[[], None]) -> None:
        """Calls back after every `init` that has started the engine, e.g. to clear a front end's tables."""
        self._on_init.append(callback)

    def before_shutdown(self, callback: Callable[[], None]) -> None:
        """Calls back before every `shutdown`, while the engine still runs, unless an exception is the cause.

        For a framework that runs operations in the background.
        """
        self._before_shutdown.append(callback)

    def at_shutdown(self, callback: Callable[[], None]) -> None:
        """Calls back after every `shutdown`."""
        self._on_shutdown.append(callback)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()

    def is_initialized(self) -> bool:
        """Whether `init` was called and `shutdown` was not, in this process."""
        return topology.is_known()

    # ------------------------------------------------------------------------------- topology --

    def rank(self) -> int:
        """This process' number in the job, from 0 to size() - 1."""
        return topology.known().rank

    def size(self) -> int:
        """Number of processes in the job."""
        return topology.known().size

    def local_rank(self) -> int:
        """This process' number among those on its host."""
        return topology.known().local_rank

    def local_size(self) -> int:
        """Number of processes on this host."""
        return topology.known().local_size

    def cross_rank(self) -> int:
        """This host's number among the hosts that have a process of this local rank."""
        return topology.known().cross_rank

    def cross_size(self) -> int:
        """Number of hosts that have a process of this local rank."""
        return topology.known().cross_size

    def is_homogeneous(self) -> bool:
        """Whether all hosts run the same number of processes."""
        topology.known()
        return bool(_native.lib().hvd_is_homogeneous())

    # --------------------------------------------------------------------------- observation --

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Starts a timeline; call it on every rank. Rank 3 writes to "t.rank3.json" when told "t.json".

        Args:
            file_path: the Chrome trace to write; an existing file is replaced.
            mark_cycles: mark where each batch starts.
        """
        topology.known()
        if not self._timeline_enabled:
            raise ValueError("Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline usage.")
        status = _native.lib().hvd_timeline_start(os.fspath(file_path).encode(), int(bool(mark_cycles)))
        engine.raise_for(status, _native.last_error() if status else "")

    def stop_timeline(self) -> None:
        """Finishes the timeline's file."""
        topology.known()
        status = _native.lib().hvd_timeline_stop()
        engine.raise_for(status, _native.last_error() if status else "")

    metrics = staticmethod(observation.metrics)
    mark = staticmethod(observation.mark)

    # -------------------------------------------------------------------------- capabilities --

    def mpi_built(self) -> bool:
        """Whether MPI can be used here."""
        return capabilities.mpi_built()

    def gloo_built(self) -> bool:
        """Whether plain sockets can be used: always."""
        return capabilities.gloo_built()

    def nccl_built(self) -> int:
        """The version of NCCL in use, 0 for none."""
        return capabilities.nccl_built()

    def ddl_built(self) -> bool:
        """False: DDL is not supported."""
        return capabilities.ddl_built()

    def ccl_built(self) -> bool:
        """False: oneCCL is not supported."""
        return capabilities.ccl_built()

    def cuda_built(self) -> bool:
        """Whether collectives run on CUDA devices."""
        return capabilities.cuda_built()

    def rocm_built(self) -> bool:
        """Whether collectives run on ROCm devices."""
        return capabilities.rocm_built()

    def mpi_enabled(self) -> bool:
        """Whether the running job was started by, or moves data over, MPI."""
        return self.is_initialized() and self._uses_mpi

    def gloo_enabled(self) -> bool:
        """Whether the running job uses plain sockets and shared memory."""
        return self.is_initialized() and not self._uses_mpi

    def mpi_threads_supported(self) -> bool:
        """Whether MPI may be called from several threads."""
        if not self.mpi_enabled():
            if not self.is_initialized() and capabilities.mpi_built():
                raise ValueError(NOT_INITIALIZED)
            raise ValueError("Horovod MPI is not enabled; Please make sure it's installed and enabled.")
        return mpi_library.threads_supported()

    # -------------------------------------------------------------------------- process sets --

    def process_set_ranks(self, number: int) -> List[int]:
        """The members of a registered set, sorted."""
        return all_sets.ranks_of(number)

    # Names by which older code reaches what horovod.common.process_sets does.

    def _add_process_set_impl(self, ranks: Sequence[int]) -> int:
        return all_sets.add_ranks(ranks)

    def _remove_process_set_impl(self, number: int) -> bool:
        return all_sets.remove_ranks(number)

    def _process_set_size(self, number: int) -> int:
        return len(all_sets.ranks_of(number))

    def _process_set_rank(self, number: int) -> int:
        return all_sets.rank_in(number)

    def _get_process_set_ids_and_ranks(self) -> Dict[int, List[int]]:
        return all_sets.all_ranks()


def _checked_sets(sets: Union[None, str, Sequence[ProcessSet]]) -> List[ProcessSet]:
    if isinstance(sets, str):
        if sets.lower() != "dynamic":
            raise ValueError(f'process_sets must be a list of ProcessSet or "dynamic", not {sets!r}')
        os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
        return []
    checked = list(sets or [])
    for one in checked:
        if not isinstance(one, ProcessSet):
            raise ValueError(f"process_sets must contain ProcessSet objects, not {one!r}")
    return checked


def _identity_from(comm: Any) -> Identity:
    """Who this process is in the world that init's argument describes."""
    if hasattr(comm, "Get_rank") and hasattr(comm, "Get_size"):
        return over_mpi.identity_of(comm)
    try:
        ranks = [int(rank) for rank in comm]
    except TypeError:
        raise ValueError(
            "Invalid type of argument comm. Expected list of rank integers or mpi4py.MPI.Comm object."
        ) from None
    return subset(detect(), ranks)


def _ranks_of_comm(comm: Any, size: int) -> List[int]:
    """Global ranks of a communicator over a part of the job."""
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ValueError("A ProcessSet made from an MPI communicator needs mpi4py.") from error
    world, group = MPI.COMM_WORLD.Get_group(), comm.Get_group()
    ranks = MPI.Group.Translate_ranks(group, list(range(group.Get_size())), world)
    return sorted(int(r) for r in ranks if 0 <= r < size)


basics = HorovodBasics()
