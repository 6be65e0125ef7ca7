# SPDX-License-Identifier: Apache-2.0
"""Listens to a job and its ranks, and lets those look who were asked for: page, terminal, Prometheus, stacks.

Every second it looks at what the ranks have said, asks those that hold up the others where they are, and
wakes whoever shows the view.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional

from horovod.common.reporter import ANSWER, ASK, SNAPSHOT
from horovod.rendezvous.errors import StoreError
from horovod.runner.watch.collector import Collector, Place
from horovod.runner.watch.onlooker import Onlooker
from horovod.runner.watch.wanted import Wanted

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer
    from horovod.rendezvous.store_service import Event

_LOOK_SECONDS = 1.0
# How long the end of a job waits at most for browsers to hear of it.
_LAST_WORD_SECONDS = 5.0


class Watcher(Onlooker):
    """One job's onlooker.

    Args:
        wanted: what the user wants to see.
        title: the job's command.
        say: tells the user something, on the job's own output.
    """

    def __init__(self, wanted: Wanted, title: str, say: Callable[[str], None]) -> None:
        self._wanted, self._say = wanted, say
        self._changed = threading.Condition()  # guards all below; notified at each look, and for answers
        self._collector = Collector(title, time.time())
        self._store: Optional[StoreServer] = None
        self._asked: Dict[str, int] = {}  # worker -> how many questions it was asked
        self._looks = 0
        self._streams = 0
        self._closed = False
        self._closing = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._watch, name="horovod-watch", daemon=True)

    # ------------------------------------------------------------------------------- the job tells

    def open(self) -> None:
        """Opens what was asked for."""
        wanted = self._wanted
        try:
            if wanted.metrics_port is not None:
                from horovod.runner.watch.openmetrics import MetricsServer

                self._keep(
                    MetricsServer(wanted.metrics_address, wanted.metrics_port, self.metrics, self._say)
                )
            if wanted.dashboard is not None:
                from horovod.runner.watch.dashboard import Dashboard

                self._keep(Dashboard(wanted.dashboard_address, wanted.dashboard, self, self._say))
            from horovod.runner.watch.inquiry import StackServer

            self._keep(StackServer(lambda: self.stacks() or "", self._say))
            if wanted.top:
                from horovod.runner.watch.top import Top

                self._keep(Top(self))
        except BaseException:
            self._closing.close()
            raise
        self._thread.start()

    def serve(self, store: StoreServer) -> None:
        """From now on workers can be asked."""
        self._store = store

    def hears(self, event: Event) -> bool:
        """Takes reports and answers off the store's board; runs on the store's thread."""
        key = event.text
        if event.kind != "told" or not key.startswith((SNAPSHOT, ANSWER)):
            return False
        value = self._store.pop(key) if self._store is not None else None
        if value is not None:
            with self._changed:
                if key.startswith(SNAPSHOT):
                    self._collector.reported(key[len(SNAPSHOT) :], json.loads(value), time.time())
                else:
                    name, _, number = key[len(ANSWER) :].rpartition("/")
                    assert self._store is not None
                    self._store.pop(f"{ASK}{name}/{number}")
                    self._collector.answered(name, value.decode("utf-8", "replace"), time.time())
                    self._changed.notify_all()
        return True

    def started(self, name: str, host: str, rank: int = -1) -> None:
        """A worker is being started."""
        with self._changed:
            self._collector.started(name, host, rank)

    def renumbered(self, ranks: Mapping[str, int]) -> None:
        """An elastic job has given its workers new ranks."""
        with self._changed:
            self._collector.renumbered(ranks)

    def exited(self, name: str, code: int) -> None:
        """A worker has ended."""
        with self._changed:
            self._collector.exited(name, code, time.time())

    def printed(self, label: str, channel: str, lines: List[bytes]) -> None:
        """A worker has printed lines."""
        with self._changed:
            texts = [line.decode("utf-8", "replace").rstrip("\r\n") for line in lines]
            self._collector.printed(label, channel, texts)

    def happened(self, kind: str, text: str) -> None:
        """Something worth telling."""
        with self._changed:
            self._collector.happened(kind, text, time.time())

    def close(self, error: Optional[str]) -> None:
        """Shows how the job ended, and closes everything."""
        with self._changed:
            self._collector.over(error, time.time())
            self._closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._streams == 0, _LAST_WORD_SECONDS)
        self._closing.close()

    # --------------------------------------------------------------------------- who shows it asks

    def metrics(self) -> Dict[str, Any]:
        """The view as it is, with the counters of every rank (collector.Collector.view)."""
        with self._changed:
            return self._collector.view(time.time(), metrics=True)

    def views(self) -> Iterator[Dict[str, Any]]:
        """The view now, and again each second until the job has ended; events and lines only once."""
        seen: Place = (0, 0)
        with self._changed:
            self._streams += 1
        try:
            over = False
            while not over:
                with self._changed:
                    looks, over = self._looks, self._closed
                    view = self._collector.view(time.time(), seen)
                seen = view["seen"]
                yield view
                with self._changed:
                    while self._looks == looks and not self._closed:
                        self._changed.wait()
        finally:
            with self._changed:
                self._streams -= 1
                self._changed.notify_all()

    def ask(self, worker: str) -> bool:
        """Asks a worker for its stacks; whether there is one of that name."""
        with self._changed:
            rank = self._collector.ranks.get(worker)
            if rank is None:
                return False
            if rank.asked or rank.code is not None or self._store is None:
                return True
            rank.asked = True
            number = self._asked.get(worker, 0)
            self._asked[worker] = number + 1
        try:  # without the lock: the store's thread may be waiting for it
            self._store.set(f"{ASK}{worker}/{number}", b"stacks")
        except StoreError:
            pass  # the job is ending
        return True

    def stacks(self, seconds: float = 3.0) -> str:
        """What each rank does, with its Python stacks."""
        from horovod.runner.watch.stacks import report

        with self._changed:
            living = [name for name, rank in self._collector.ranks.items() if rank.code is None]
        for name in living:
            self.ask(name)
        with self._changed:
            ranks = self._collector.ranks
            self._changed.wait_for(
                lambda: not any(name in ranks and ranks[name].asked for name in living), seconds
            )
            return report(self._collector.view(time.time()))

    # ------------------------------------------------------------------------------------- private

    def _keep(self, shown: Any) -> None:
        self._closing.callback(shown.close)

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, _LOOK_SECONDS):
                    return
                wanted = self._collector.look(time.time())
                self._looks += 1
                self._changed.notify_all()
            for name in wanted:
                self.ask(name)
