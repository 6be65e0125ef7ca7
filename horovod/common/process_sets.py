# SPDX-License-Identifier: Apache-2.0
"""Process sets: groups of ranks that run collectives among themselves."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence, Union

from horovod.common.exceptions import NOT_INITIALIZED

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
        return len(_basics().process_set_ranks(self.process_set_id))

    def rank(self) -> Optional[int]:
        """This process' index in the set, or None if the set is not registered."""
        if self.process_set_id is None:
            return None
        index: int = _basics()._process_set_rank(self.process_set_id)
        return index

    def included(self) -> Optional[bool]:
        """Whether this process is a member; None if the members are not known yet."""
        if self.ranks is None:
            return None
        return _basics().rank() in self.ranks

    def __str__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"
        )

    __repr__ = __str__


def _is_comm(value: Any) -> bool:
    return hasattr(value, "Get_rank") and hasattr(value, "Get_size")


def _basics() -> Any:
    from horovod.common.basics import basics  # it imports this module

    return basics


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
    basics = _basics()
    if not basics.is_initialized():
        raise ValueError(NOT_INITIALIZED)
    if not basics.dynamic_process_sets:
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
        process_set.process_set_id = basics.register_process_set(process_set.ranks)
    except FileExistsError:
        raise ValueError(f"Attempted to add a duplicate process set: {process_set}") from None
    _registered.append(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Forgets a registered process set. Every rank of the job must call it.

    Returns:
        False if the set is not registered or is the global one.
    """
    basics = _basics()
    if not basics.is_initialized():
        raise ValueError(NOT_INITIALIZED)
    if not basics.dynamic_process_sets:
        raise ValueError(
            "Set HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow removing process sets after Horovod initialization."
        )
    number = process_set.process_set_id
    if number is None or number == 0:
        return False
    removed: bool = basics.unregister_process_set(number)
    for known in [p for p in _registered if p.process_set_id == number]:
        known.process_set_id = None
        _registered.remove(known)
    process_set.process_set_id = None
    return removed


def adopt(process_sets: Iterable[ProcessSet]) -> None:
    """Gives objects that were passed to init the ids under which the engine knows their ranks."""
    known = {tuple(ranks): number for number, ranks in _basics()._get_process_set_ids_and_ranks().items()}
    for process_set in process_sets:
        process_set.process_set_id = known[tuple(process_set.ranks or ())]
        if process_set not in _registered and process_set is not global_process_set:
            _registered.append(process_set)


def on_init(size: int) -> None:
    """Called when the engine has started with that many ranks."""
    global_process_set.ranks = list(range(size))


def on_shutdown() -> None:
    """Called when the engine has stopped: ids have no meaning any more."""
    global_process_set.ranks = []
    for process_set in _registered:
        process_set.process_set_id = None
    _registered.clear()
