# SPDX-License-Identifier: Apache-2.0
"""Ranks in tasks of a Spark Connect session. The client need not be reachable, so task 0 is the launcher.

The tasks form a barrier: task 0 tells the others where it listens, all of them run a rank, and task 0 returns
the outcome. What the ranks print is shown when they are done.
"""

from __future__ import annotations

import base64
import io
import json
import queue
import sys
import threading
import time
import uuid
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, Optional

from horovod.runner import results
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.run_function import results_of
from horovod.runner.settings import JobSettings
from horovod.spark.explaining import explained
from horovod.spark.host_task import Launcher, be_a_host
from horovod.spark.tasks_job import TasksJob, too_few

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer

# What is kept of the ranks' output, for each stream.
_OUTPUT_BYTES = 4 << 20
_POLL_SECONDS = 0.5


@dataclass
class _Outcome:
    """What task 0 returns."""

    results: Optional[List[Any]] = None
    error: Optional[BaseException] = None
    cause: str = ""  # the remote traceback
    stdout: str = ""
    stderr: str = ""


def run_with_connect(session: Any, settings: JobSettings, call: Optional[bytes]) -> List[Any]:
    """Runs a pickled call, or without one the settings' command, on ranks in tasks of a Connect session."""
    import cloudpickle

    streams = settings.stdout or sys.stdout, settings.stderr or sys.stderr
    portable = replace(settings, stdout=None, stderr=None)
    rows = _collect(session, portable, call)
    outcome: _Outcome = cloudpickle.loads(rows[0][0])
    streams[0].write(outcome.stdout)
    streams[1].write(outcome.stderr)
    if outcome.error is not None:
        raise outcome.error from (results.RemoteTraceback(outcome.cause) if outcome.cause else None)
    assert outcome.results is not None
    return outcome.results


def _collect(session: Any, settings: JobSettings, call: Optional[bytes]) -> List[Any]:
    """Runs the Spark job, and ends it if its tasks do not start in time."""
    tag = f"horovod.spark.run.{uuid.uuid4().hex}"
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def work() -> None:
        session.addTag(tag)
        try:
            tasks = session.range(0, settings.num_proc, 1, settings.num_proc)
            done.put(tasks.mapInArrow(_task(settings, call), "outcome binary", barrier=True).collect())
        except Exception as error:
            done.put(error)

    watch = _Watch(session)
    threading.Thread(target=work, name="horovod-spark-connect", daemon=True).start()
    deadline = time.monotonic() + settings.start_timeout
    try:
        while True:
            try:
                found = done.get(timeout=_POLL_SECONDS)
                break
            except queue.Empty:
                if watch.most < settings.num_proc and watch.counts and time.monotonic() > deadline:
                    raise TimeoutException(too_few(watch.most, settings.num_proc, settings)) from None
    except BaseException:
        session.interruptTag(tag)
        raise
    finally:
        watch.close()
    if isinstance(found, Exception):
        raise explained(found) from found
    return list(found)


class _Watch:
    """How many tasks of this session run at a time, as far as the client can tell.

    Attributes:
        most: the highest number seen.
        counts: whether the client tells at all.
    """

    def __init__(self, session: Any) -> None:
        self.most = 0
        self._session = session
        self.counts = hasattr(session, "registerProgressHandler")
        if self.counts:
            session.registerProgressHandler(self._progress)

    def close(self) -> None:
        """Stops watching."""
        if self.counts:
            self._session.removeProgressHandler(self._progress)

    def _progress(self, stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
        self.most = max(self.most, inflight_tasks)


# ---------------------------------------------------------------------------------------- in the tasks --


def _task(settings: JobSettings, call: Optional[bytes]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import BarrierTaskContext

        for _ in batches:
            pass  # the row that made this task
        context = BarrierTaskContext.get()
        number = context.partitionId()
        if number:
            launcher = _from_text(context.allGather("")[0])
            be_a_host(launcher, number, context)
        else:
            lead = _Lead(settings, call)
            context.allGather(_to_text(lead.launcher()))
            be_a_host(lead.launcher(), number, context)
            yield pa.RecordBatch.from_pydict({"outcome": [lead.outcome()]})

    return run


class _Lead:
    """The launcher, in a thread of task 0."""

    def __init__(self, settings: JobSettings, call: Optional[bytes]) -> None:
        self._settings = replace(settings, stdout=_Kept(), stderr=_Kept())
        self._call = call
        self._launchers: queue.Queue[Launcher] = queue.Queue()
        self._launcher: Optional[Launcher] = None
        self._outcome = _Outcome()
        self._thread = threading.Thread(target=self._run, name="horovod-launcher", daemon=True)
        self._thread.start()

    def launcher(self) -> Launcher:
        """Where it listens."""
        if self._launcher is None:
            self._launcher = self._launchers.get()
        return self._launcher

    def outcome(self) -> bytes:
        """The end of the job."""
        import cloudpickle

        self._thread.join()
        self._outcome.stdout = self._settings.stdout.getvalue()  # type: ignore[union-attr]
        self._outcome.stderr = self._settings.stderr.getvalue()  # type: ignore[union-attr]
        return bytes(cloudpickle.dumps(self._outcome))

    def _run(self) -> None:
        from horovod.rendezvous.network import interface_address, loopback, own_addresses

        nics = self._settings.nics
        addresses = [interface_address(name) for name in nics] if nics else own_addresses() or [loopback()]
        job = TasksJob(
            self._settings,
            addresses,
            lambda launcher, ended: self._launchers.put(launcher),
            lambda clean: None,
            self._prepare,
        )
        try:
            if self._call is None:
                job.run()
                self._outcome.results = []
            else:
                self._outcome.results = results_of(job)
        except BaseException as error:
            self._outcome.error = error
            self._outcome.cause = str(error.__cause__ or "")

    def _prepare(self, store: StoreServer) -> None:
        if self._call is not None:
            results.publish(store, self._call)


@dataclass
class _Kept(io.TextIOBase):
    """The end of what was written."""

    _parts: List[str] = field(default_factory=list)
    _size: int = 0

    def write(self, text: str) -> int:
        self._parts.append(text)
        self._size += len(text)
        while self._size > _OUTPUT_BYTES and len(self._parts) > 1:
            self._size -= len(self._parts.pop(0))
        return len(text)

    def getvalue(self) -> str:
        """All of it."""
        return "".join(self._parts)


def _to_text(launcher: Launcher) -> str:
    return json.dumps(dict(asdict(launcher), secret=base64.b64encode(launcher.secret).decode()))


def _from_text(text: str) -> Launcher:
    found = json.loads(text)
    return Launcher(tuple(found["addresses"]), found["port"], base64.b64decode(found["secret"]))
