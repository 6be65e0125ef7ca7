# SPDX-License-Identifier: Apache-2.0
"""What a worker of an elastic job and its driver tell each other, over the job's store.

    driver -> worker   "elastic/news/WORKER/N"      hosts were added or removed; only rank 0 is told
    worker -> driver   "elastic/told/state/WORKER"  it has the state of the training now
                       "elastic/told/leave/WORKER"  it was asked to end (SIGTERM): leaves at the next commit

In a job without a driver nothing is said and nobody listens.
"""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import Any, Dict, List, Optional, Tuple

from horovod.common import topology
from horovod.rendezvous.detection import detect
from horovod.rendezvous.errors import StoreError, StoreTimeout
from horovod.rendezvous.identity import Identity

_LISTEN_SECONDS = 3600.0


class WorkerNotificationManager:
    """Passes news about hosts from the job's driver to the states that listen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: List[Any] = []
        self._identity: Optional[Identity] = None
        self._thread: Optional[threading.Thread] = None
        self._newest: Optional[Tuple[int, float, int]] = None  # generation, timestamp, change
        self._asked_to_end = False
        self.job_over = False  # the driver is gone, or has ended the job

    @property
    def is_driven(self) -> bool:
        """Whether this process is a worker of an elastic job."""
        return self._identity is not None

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Begins to listen for the driver, if this job has one; any number of times."""
        if self._thread is not None and self._thread.is_alive():
            return
        found = detect()
        if not found.worker:
            return
        self._identity = found
        self._thread = threading.Thread(target=self._listen, args=(found,), name="horovod-news", daemon=True)
        self._thread.start()
        if threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self._on_sigterm)

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

    def repeat_news(self) -> None:
        """Tells the newest news of the running world again; called by whoever has just dropped old news."""
        newest = self._newest
        if newest is not None and newest[0] == _generation():
            self.handle_hosts_updated(*newest[1:])

    def tell(self, kind: str, facts: Dict[str, Any]) -> None:
        """Tells the driver something; nothing happens without one."""
        if self._identity is None:
            return
        try:
            with self._identity.open_store() as store:
                key = f"elastic/told/{kind}/{self._identity.worker}"
                store.set(key, json.dumps(dict(facts, generation=_generation())).encode())
        except StoreError:
            pass  # the job is over; whoever asks for a place next hears why

    # ------------------------------------------------------------------------------------- private

    def _listen(self, identity: Identity) -> None:
        number = 0
        try:
            with identity.open_store() as store:
                while True:
                    try:
                        value = store.get(f"elastic/news/{identity.worker}/{number}", _LISTEN_SECONDS)
                    except StoreTimeout:
                        continue
                    number += 1
                    news = json.loads(value)
                    self._newest = (news["generation"], news["timestamp"], news["change"])
                    self.repeat_news()
        except StoreError:
            self.job_over = True
            if self._asked_to_end:  # nobody is left who could let it go
                os.kill(os.getpid(), signal.SIGTERM)

    def _on_sigterm(self, number: int, frame: object) -> None:
        """Leaves at the next commit; a second signal, or one after the end of the job, ends the process."""
        if self._asked_to_end or self.job_over:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self._asked_to_end = True
        threading.Thread(target=self.tell, args=("leave", {}), daemon=True).start()


def _generation() -> int:
    return topology.world().generation if topology.is_known() else 0


notification_manager = WorkerNotificationManager()
