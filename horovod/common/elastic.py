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
import queue
import threading
from typing import Any, Callable, Dict, List, Sequence, Tuple

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

_REMOVED_ONLY = 1  # of the flags "removed" (1) and "added" (2)


class WorkerNotificationManager:
    """Passes news about hosts from the launcher's driver to the states that listen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: List[Any] = []

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Begins to listen for a driver. Jobs are static so far: there is none to hear."""

    def register_listener(self, listener: Any) -> None:
        """A state that wants to hear of changes."""
        with self._lock:
            if listener not in self._listeners:
                self._listeners.append(listener)

    def remove_listener(self, listener: Any) -> None:
        """The opposite of `register_listener`."""
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Called when the driver says that hosts were added or removed."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()


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
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks alike if rank 0 has heard of added or removed hosts."""
        previous = newest = self._last_updated_timestamp
        changes = 0
        while not self._host_messages.empty():
            timestamp, change = self._host_messages.get()
            if timestamp > newest:
                newest = timestamp
            changes |= int(change)
        previous, self._last_updated_timestamp, changes = self._bcast_object((previous, newest, changes))
        if self._last_updated_timestamp > previous:
            raise HostsUpdatedInterrupt(changes == _REMOVED_ONLY)

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

    def _set_attrs(self) -> None:
        for name, value in self._saved_state.items():
            setattr(self, name, value)


def run_fn(func: Callable[..., Any], reset: Callable[[], None]) -> Callable[..., Any]:
    """Wraps a training function so that it starts again after failures and changes of hosts.

    Args:
        func: called as func(state, ...).
        reset: shuts the engine down and initialises it again.
    """

    @functools.wraps(func)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = False
        try:
            while True:
                try:
                    if not skip_sync:
                        state.sync()
                    return func(state, *args, **kwargs)
                except HorovodInternalError:
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as interrupt:
                    skip_sync = interrupt.skip_sync
                reset()
                state.on_reset()
        finally:
            notification_manager.remove_listener(state)

    return wrapper
