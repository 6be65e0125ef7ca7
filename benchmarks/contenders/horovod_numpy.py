# SPDX-License-Identifier: Apache-2.0
"""horovod.numpy: in place, out of place, and grouped."""

from __future__ import annotations

import os
import tempfile
import threading
from typing import Any, Callable, List

from benchmarks.contenders.adapter import Adapter

METRICS_EVERY_S = 0.1
RECORDER_EVERY_S = 1.0


class InPlace(Adapter):
    """allreduce_"""

    def __init__(self) -> None:
        import horovod.numpy as hvd

        self.join(hvd)

    def join(self, hvd: Any) -> None:
        """Joins the job through a front end. The barrier is NumPy's: one engine serves all of a process."""
        import horovod.numpy

        hvd.init()
        self.hvd, self.rank, self.size = hvd, hvd.rank(), hvd.size()
        self.wait_for_all = horovod.numpy.barrier

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        return self.hvd.allreduce_(data, op=self.hvd.Sum, name=name)

    def start(self, data: Any, name: str) -> Any:
        return self.hvd.allreduce_async_(data, op=self.hvd.Sum, name=name)

    def done(self, handle: Any) -> bool:
        return bool(self.hvd.poll(handle))

    def finish(self, handles: List[Any]) -> None:
        for handle in handles:
            self.hvd.synchronize(handle)

    def barrier(self) -> None:
        self.wait_for_all()

    def observe(self, what: str) -> Callable[[], None]:
        from horovod.common import observation

        if what == "timeline":
            folder = tempfile.TemporaryDirectory(prefix="hvd-bench-timeline-")
            self.hvd.start_timeline(os.path.join(folder.name, "timeline.json"))

            def stop() -> None:
                self.hvd.stop_timeline()
                folder.cleanup()

            return stop
        if what == "metrics":
            return _now_and_then(observation.metrics, METRICS_EVERY_S)
        if what == "recorder":
            return _now_and_then(observation.recent, RECORDER_EVERY_S)
        if what == "reports":
            return _report()
        return lambda: None

    def close(self) -> None:
        self.hvd.shutdown()


class OutOfPlace(InPlace):
    """allreduce: every call makes its result."""

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        return self.hvd.allreduce(data, op=self.hvd.Sum, name=name)


class Grouped(InPlace):
    """All tensors of a step in one call."""

    def many(self, tensors: List[Any]) -> None:
        self.hvd.grouped_allreduce_(tensors, op=self.hvd.Sum, name="bench")


def _report() -> Callable[[], None]:
    """As under --dashboard, --top and --metrics-port: the launcher is told, at once and every second."""
    from horovod.common import reporter
    from horovod.rendezvous.readers import own

    identity = own.read(os.environ)
    assert identity is not None, "this contender is started by horovodrun"
    store = identity.open_store()
    worker = str(identity.rank)
    reporter.send(store, worker)
    stop = _now_and_then(lambda: reporter.send(store, worker), reporter.REPORT_SECONDS)

    def end() -> None:
        stop()
        store.close()

    return end


def _now_and_then(look: Callable[[], object], seconds: float) -> Callable[[], None]:
    """A thread that looks at the engine now and then, as a scraper would at its most eager."""
    over = threading.Event()

    def read() -> None:
        while not over.wait(seconds):
            look()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join()

    return stop
