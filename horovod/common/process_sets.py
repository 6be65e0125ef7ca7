# SPDX-License-Identifier: Apache-2.0
"""Process sets: groups of ranks that run collectives among themselves.

This module owns them: the objects that users hold, which of these are registered, and the calls that register
sets with the engine. The life cycle (basics.py) tells it when the engine has started and stopped.
"""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

from horovod.common import _native, engine, names, seals, set_links, topology
from horovod.common.constants import INVALID, OK
from horovod.common.exceptions import HorovodInternalError

log = logging.getLogger("horovod")
_NOT_RANKS = "ProcessSet should be initialized with a list of process ranks or an mpi4py Comm object"


class ProcessSet:
    """A group of ranks. Use it as the `process_set` argument of any operation, once registered.

    Register sets with ``hvd.init(process_sets=[...])`` or, in dynamic mode, ``hvd.add_process_set``.

    Args:
        ranks_or_comm: global ranks in any order, or an mpi4py communicator over a part of the job.

    Attributes:
        process_set_id: number given at registration; None before.
        ranks: global ranks, sorted.
        mpi_comm: the communicator it was made from, if any.
    """

    def __init__(self, ranks_or_comm: Any) -> None:
        self.process_set_id: Optional[int] = None
        self.ranks: Optional[List[int]] = None
        self.mpi_comm: Any = None
        if _is_comm(ranks_or_comm):
            self.mpi_comm = ranks_or_comm
            return
        try:
            ranks = list(ranks_or_comm)
        except TypeError:
            raise ValueError(_NOT_RANKS) from None
        if any(isinstance(r, bool) or not hasattr(r, "__index__") for r in ranks):
            raise ValueError(_NOT_RANKS)
        self.ranks = sorted(int(r) for r in ranks)

    def size(self) -> Optional[int]:
        """Number of members, or None if the set is not registered."""
        if self.process_set_id is None:
            return None
        return len(ranks_of(self.process_set_id))

    def rank(self) -> Optional[int]:
        """This process' index in the set, or None if the set is not registered."""
        if self.process_set_id is None:
            return None
        return rank_in(self.process_set_id)

    def included(self) -> Optional[bool]:
        """Whether this process is a member; None if the members are not known yet."""
        if self.ranks is None:
            return None
        return topology.known().rank in self.ranks

    def __str__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"
        )

    __repr__ = __str__


def _is_comm(value: Any) -> bool:
    return hasattr(value, "Get_rank") and hasattr(value, "Get_size")


def _make_global() -> ProcessSet:
    made = ProcessSet([])
    made.process_set_id = 0
    return made


def _temp_process_set_object(process_set_id: int) -> ProcessSet:
    """A set known by its number only, as where a gradient function reads it from an attribute."""
    made = ProcessSet([])
    made.ranks = None
    made.process_set_id = process_set_id
    return made


global_process_set = _make_global()
_registered: List[ProcessSet] = []  # objects to invalidate when their set goes away
_wanted: List[
    ProcessSet
] = []  # in the order of their making, those too whose ranks are missing at the moment
_dynamic = False  # whether sets may be added and removed while running


def process_set_id(process_set: Union[ProcessSet, int, None]) -> int:
    """The number an operation sends. Raises TypeError for a set that is not registered."""
    if process_set is global_process_set or process_set is None:
        return 0
    number = process_set if isinstance(process_set, int) else process_set.process_set_id
    if number is None:
        raise TypeError(
            f"{process_set} is not registered. Pass it to hvd.init(process_sets=[...]), or call "
            "hvd.add_process_set in dynamic mode."
        )
    return number


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Registers a process set while running. Every rank of the job must call it with the same ranks.

    Needs ``hvd.init(process_sets="dynamic")`` or HOROVOD_DYNAMIC_PROCESS_SETS=1.

    Returns:
        The registered set: the object passed, or a new one for a list of ranks.
    """
    topology.known()
    if not _dynamic:
        raise ValueError(
            "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow adding process sets after Horovod initialization."
        )
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.ranks is None:
        raise NotImplementedError(
            "Dynamically adding process sets defined by an MPI communicator is not implemented. Please build "
            "the process set via a list of ranks."
        )
    try:
        make_again([process_set])
        return process_set
    except FileExistsError:
        raise ValueError(f"Attempted to add a duplicate process set: {process_set}") from None


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forgets a registered process set. Every rank of the job must call it.

    Returns:
        False if the set is not registered or is the global one.
    """
    topology.known()
    if not _dynamic:
        raise ValueError(
            "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow removing process sets after Horovod initialization."
        )
    number = process_set.process_set_id
    if process_set in _wanted:
        _wanted.remove(process_set)
    if number is None or number == 0:
        return False
    removed = remove_ranks(number)
    for known in [p for p in _registered if p.process_set_id == number]:
        known.process_set_id = None
        _registered.remove(known)
    process_set.process_set_id = None
    return removed


# ------------------------------------------------------------------------------ sets in the engine --


def register(process_set: ProcessSet) -> ProcessSet:
    """Collective over all ranks: registers a set and opens its links. Raises FileExistsError if known."""
    process_set.process_set_id = add_ranks(process_set.ranks or [])
    _registered.append(process_set)
    return process_set


def add_ranks(ranks: Sequence[int]) -> int:
    """Collective over all ranks: registers the set of these ranks with the engine and returns its number."""
    size = topology.known().size
    if len(set(ranks)) != len(ranks) or any(not 0 <= r < size for r in ranks) or not ranks:
        what = "duplicate" if len(set(ranks)) != len(ranks) else "invalid"
        raise ValueError(f"Tried to register process set with {what} rank: {list(ranks)}")
    array = (ctypes.c_int32 * len(ranks))(*ranks)
    number = int(_native.lib().hvd_add_process_set(array, len(ranks)))
    if number < 0:
        text = _native.last_error()
        if number == INVALID and sorted(ranks) in all_ranks().values():
            raise FileExistsError(text)
        engine.raise_for(number, text)
    names.forget_set(number)
    seals.set_registered(number)
    set_links.attach(topology.world(), sorted(ranks), number)
    return number


def remove_ranks(number: int) -> bool:
    """Collective over all ranks: the engine forgets a set; False if there is none of that number."""
    status = _native.lib().hvd_remove_process_set(number)
    if status == OK:
        return True
    if status == INVALID:
        return False
    raise HorovodInternalError(_native.last_error())


def ranks_of(number: int) -> List[int]:
    """The members of a registered set, sorted."""
    size = topology.known().size
    array = (ctypes.c_int32 * size)()
    count = _native.lib().hvd_process_set_ranks(number, array, size)
    if count < 0:
        raise ValueError("Process set does not exist or has not been registered.")
    return list(array[:count])


def rank_in(number: int) -> int:
    """This process' index in a registered set."""
    members = ranks_of(number)
    rank = topology.known().rank
    if rank not in members:
        raise ValueError("Process is not part of provided process set.")
    return members.index(rank)


def all_ranks() -> Dict[int, List[int]]:
    """Every registered set: number -> members."""
    lib = _native.lib()
    count = lib.hvd_process_set_ids(None, 0)
    numbers = (ctypes.c_int32 * max(count, 1))()
    count = min(count, lib.hvd_process_set_ids(numbers, count))
    return {number: ranks_of(number) for number in sorted(numbers[:count])}


# -------------------------------------------------------------------------------- the life cycle --


def adopt(process_sets: Iterable[ProcessSet]) -> None:
    """Gives objects that were passed to init the ids under which the engine knows their ranks."""
    known = {tuple(ranks): number for number, ranks in all_ranks().items()}
    for process_set in process_sets:
        process_set.process_set_id = known[tuple(process_set.ranks or ())]
        if process_set not in _registered and process_set is not global_process_set:
            _registered.append(process_set)


def _fits(process_set: ProcessSet) -> bool:
    """Whether a set can be made in this world; in a job of fixed size one that cannot is an error."""
    size, ranks = topology.known().size, process_set.ranks or []
    if not topology.world().is_elastic or all(rank < size for rank in ranks):
        return True
    log.warning("%s is not made while the job has only %d ranks", process_set, size)
    return False


def remembered() -> List[ProcessSet]:
    """The sets of this world, to be made again in the next one."""
    return list(_wanted)


def make_again(process_sets: Iterable[ProcessSet]) -> None:
    """Collective over all ranks: registers the sets of the world before, those that fit into this one."""
    for process_set in process_sets:
        if not _fits(process_set):
            pass
        elif topology.world().is_elastic and process_set.ranks in all_ranks().values():
            adopt([process_set])  # all ranks of a job that has shrunk, for example
        else:
            register(process_set)
        _wanted.append(process_set)


def on_init(size: int, dynamic: bool) -> None:
    """Called when the engine has started with that many ranks."""
    global _dynamic
    seals.reset()
    global_process_set.ranks = list(range(size))
    _dynamic = dynamic


def on_shutdown() -> None:
    """Called when the engine has stopped: ids have no meaning any more."""
    global_process_set.ranks = []
    for process_set in _registered:
        process_set.process_set_id = None
    _registered.clear()
    _wanted.clear()
