# SPDX-License-Identifier: Apache-2.0
"""Training that survives the loss of workers: state to keep, and the loop around the training function.

    @hvd.elastic.run
    def train(state):
        for state.batch in range(state.batch, 1000):
            ...
            state.commit()

A failed collective (HorovodInternalError) restores the last commit; a change of hosts (HostsUpdatedInterrupt)
keeps the current values. Either way the job re-forms, the state is synchronised from rank 0, and the function
is called again.
"""

from __future__ import annotations

import functools
import logging
import queue
import sys
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

from horovod.common import _native, constants, objects, topology
from horovod.common.basics import basics
from horovod.common.checkpoint import checkpoint
from horovod.common.exceptions import (
    HorovodInternalError,
    HostsUpdatedInterrupt,
    RanksDisagree,
    WorkerRemoved,
)
from horovod.common.notification import WorkerNotificationManager, notification_manager
from horovod.rendezvous.world import World

__all__ = [
    "ObjectState", "State", "WorkerNotificationManager", "checkpoint", "notification_manager", "run",
    "run_fn",
]  # fmt: skip

log = logging.getLogger("horovod")
_REMOVED_ONLY = 1  # of the flags "removed" (1) and "added" (2)
# How often a worker of an elastic job tries to join the world again before it gives up.
_TRIES = 10


class State:
    """What must survive a change of workers. Subclasses say how to save, restore and synchronise it.

    Args:
        bcast_object: `broadcast_object` of the front end.
        get_rank: `rank` of the front end.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[Tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: List[Callable[[], None]] = []
        self._commits = 0

    def register_reset_callbacks(self, callbacks: Sequence[Callable[[], None]]) -> None:
        """Functions to call after the job has re-formed, e.g. to scale the learning rate to the new size."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """The job has re-formed: forget old news, reset, and call the callbacks."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Queues news about hosts; may be called from any thread."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state and raises HostsUpdatedInterrupt if hosts were added or removed."""
        self.save()
        self._commits += 1
        interrupt = self._heard_of_changes()
        if interrupt is not None:
            raise interrupt

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks alike if rank 0 has heard of added or removed hosts.

        The state is saved then: the next world goes on with the current values.
        """
        interrupt = self._heard_of_changes()
        if interrupt is not None:
            self.save()
            raise interrupt

    def _heard_of_changes(self) -> Optional[HostsUpdatedInterrupt]:
        previous = newest = self._last_updated_timestamp
        changes = 0
        while not self._host_messages.empty():
            timestamp, change = self._host_messages.get()
            if timestamp > newest:
                newest = timestamp
            changes |= int(change)
        previous, self._last_updated_timestamp, changes = self._bcast_object((previous, newest, changes))
        if self._last_updated_timestamp > previous:
            return HostsUpdatedInterrupt(changes == _REMOVED_ONLY)
        return None

    def snapshot(self) -> Any:
        """What `save` has kept, as something that can be pickled; for `checkpoint`."""
        raise NotImplementedError

    def load_snapshot(self, snapshot: Any) -> None:
        """Takes what `snapshot` gave, perhaps in another process, as if saved here, and restores it."""
        raise NotImplementedError

    def samples_left(self) -> Optional[int]:
        """How many samples of this epoch are left, if the state knows; for the launcher's messages."""
        return None

    def save(self) -> None:
        """Keeps the current values, to be brought back by `restore`."""
        raise NotImplementedError

    def restore(self) -> None:
        """Brings back the values last saved."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives every rank the values of rank 0."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapts to a new set of ranks; nothing by default."""


class ObjectState(State):
    """State of plain Python objects: every keyword argument becomes an attribute that is kept."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        self._bcast_object = bcast_object
        self._saved_state: Dict[str, Any] = kwargs
        self._set_attrs()
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)

    def save(self) -> None:
        self._saved_state = {name: getattr(self, name) for name in self._saved_state}

    def restore(self) -> None:
        self._set_attrs()

    def sync(self) -> None:
        if self._saved_state:
            self._saved_state = self._bcast_object(self._saved_state)
            self._set_attrs()

    def snapshot(self) -> Any:
        return dict(self._saved_state)

    def load_snapshot(self, snapshot: Any) -> None:
        self._saved_state.update(snapshot)
        self._set_attrs()

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Wraps a training function so that it starts again after failures and changes of hosts.

    Args:
        func: called as func(state, ...).
        reset: shuts the engine down and initialises it again. If it leaves the old world as it is, like
            `hvd.init` alone, the loop does it.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = False
        try:
            while True:
                try:
                    _synchronise(state, skip_sync)
                    return func(state, *args, **kwargs)
                except HostsUpdatedInterrupt as interrupt:
                    skip_sync = interrupt.skip_sync
                except Exception as error:
                    if not _is_loss(error):
                        raise
                    log.info("the job re-forms: %s", error)
                    state.restore()
                    skip_sync = False
                _join_again(reset)
                state.on_reset()
                notification_manager.repeat_news()
        finally:
            notification_manager.remove_listener(state)

    return wrapper


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function `func(state, ...)` so that it goes on after failures and host changes."""
    return run_fn(func, basics.reset)


def _is_loss(error: Exception) -> bool:
    """Whether an error says that the world is not whole any more, rather than that the script is wrong."""
    if isinstance(error, HorovodInternalError):
        return not isinstance(error, RanksDisagree)  # which would happen again
    # Frameworks put what an operation of ours says into an exception of their own.
    return "Horovod" in str(error) and topology.is_known() and _native.lib().hvd_check() != constants.OK


def _synchronise(state: State, skip: bool) -> None:
    """Gives every rank the state of rank 0, unless all of them have it already.

    Ranks come here for different reasons: one restored a commit, one only heard that a host is gone, one is
    new. So they decide together.
    """
    if topology.is_known() and topology.known().size > 1:
        said = objects.allgather_object((skip, getattr(state, "_commits", 0)), name="elastic.synchronise")
        skip = all(one for one, _ in said)
        state._commits = said[0][1]
    if not skip:
        state.sync()
    if notification_manager.is_driven:
        facts = {"commits": state._commits, "samples_left": state.samples_left()}
        notification_manager.tell("state", facts)


def _join_again(reset: Callable[[], None]) -> None:
    """Forms the next world; in an elastic job that is tried again when it fails on the way."""
    old = _world()
    for attempt in range(1, _TRIES + 1):
        try:
            reset()
            if old is not None and _world() is old:  # else the loop would fail in it for ever
                basics.reset()
            return
        except WorkerRemoved as error:
            _leave(str(error))
        except RanksDisagree:
            raise
        except HorovodInternalError as error:
            if not notification_manager.is_driven or notification_manager.job_over or attempt == _TRIES:
                raise
            log.warning("could not join the job, trying again: %s", error)


def _world() -> Optional[World]:
    return topology.world() if topology.is_known() else None


def _leave(reason: str) -> NoReturn:
    """The job goes on without this worker, whose script ends here."""
    print(f"horovod: this worker leaves the job: {reason}", file=sys.stderr, flush=True)
    sys.exit(0)
