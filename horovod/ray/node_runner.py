# SPDX-License-Identifier: Apache-2.0
"""Runs the workers of an elastic job on a Ray node: each an actor there, whose end Ray reports at once."""

from __future__ import annotations

import concurrent.futures
import threading
import traceback
from typing import Any, Callable, Dict, List

from horovod.ray.devices import VISIBLE, own_at
from horovod.ray.free_slots import Running
from horovod.ray.nodes import Node
from horovod.ray.room import Resources
from horovod.ray.worker import BaseHorovodWorker
from horovod.rendezvous.readers import own
from horovod.runner.host_runner import (
    GRACE_SECONDS,
    STDERR,
    STDOUT,
    HostReady,
    HostUnreachable,
    OutputFunction,
    ReportFunction,
    WorkerExited,
    WorkerSpec,
)

_LOST = 128 + 9  # what a launcher calls the end of a process that was killed


class ElasticWorker(BaseHorovodWorker):
    """A worker of an elastic job: does one thing, and then ends."""

    def train(self, env: Dict[str, str], gpus_of_node: int, queue: Any, call: Any) -> Any:
        """Calls the user's function as this worker; leaves the job whatever comes of it."""
        if queue is not None:
            self.set_queue(queue)
        self.update_env_vars(env)
        mine = self.get_gpu_ids()
        if mine:
            slot = int(env["HOROVOD_LOCAL_RANK"])
            self.update_env_vars({VISIBLE: own_at(slot, mine, gpus_of_node)})
        function, args, kwargs = call
        try:
            return self.call(function, args, kwargs)
        finally:
            self.leave()


class Outcomes:
    """What the functions of workers returned and raised, by the workers' names."""

    def __init__(self) -> None:
        self.results: Dict[str, Any] = {}
        self.errors: Dict[str, BaseException] = {}


class NodeRunner:
    """Starts and ends workers on one node (see horovod.runner.host_runner.HostRunner).

    Args:
        host: the node's name.
        find: looks the node up, now.
        worker: what Ray sets aside for each worker.
        call: a reference of Ray to (function, args, kwargs).
        queue: for ray_logger, or None.
        outcomes: where results go.
        running: is told of workers that start and end.
        output, report: see HostRunner.
    """

    def __init__(
        self,
        host: str,
        find: Callable[[str], Any],
        worker: Resources,
        call: Any,
        queue: Any,
        outcomes: Outcomes,
        running: Running,
        output: OutputFunction,
        report: ReportFunction,
    ) -> None:
        self.host = host
        self._find, self._worker, self._call, self._queue = find, worker, call, queue
        self._outcomes, self._output, self._report = outcomes, output, report
        self._running = running
        self._node: Node = {}
        self._lock = threading.Lock()
        self._actors: Dict[int, Any] = {}
        self._ends: Dict[int, concurrent.futures.Future[Any]] = {}

    def open(self) -> None:
        """Looks whether the node is there."""
        node = self._find(self.host)
        if node is None:
            self._report(HostUnreachable(self.host, "Ray has no living node of this name"))
        else:
            self._node = node
            self._report(HostReady(self.host))

    def start(self, spec: WorkerSpec) -> None:
        """Starts an actor on the node, and the user's function in it."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if not self._node:
            self._exited(spec.worker, 127)
            return
        env = dict(spec.env)
        env["HOROVOD_HOSTNAME"] = self._node["NodeManagerHostname"]  # for people
        env[own.HOST_KEY] = self._node["NodeID"]  # who shares memory
        actor = (
            ray.remote(ElasticWorker)
            .options(
                num_cpus=self._worker["CPU"],
                num_gpus=self._worker.get("GPU", 0),
                scheduling_strategy=NodeAffinitySchedulingStrategy(self._node["NodeID"], soft=False),
            )
            .remote()
        )
        gpus = int(self._node["Resources"].get("GPU", 0))
        end = actor.train.remote(env, gpus, self._queue, self._call).future()
        with self._lock:
            self._actors[spec.worker], self._ends[spec.worker] = actor, end
        self._running.add(self._node["NodeID"], 1)

        def ended(done: concurrent.futures.Future[Any]) -> None:  # on a thread that Ray needs to answer us
            threading.Thread(target=self._ended, args=(spec.worker, env[own.WORKER], done)).start()

        end.add_done_callback(ended)

    def end(self, worker: int, grace: float = GRACE_SECONDS) -> None:
        """Ends a worker; Ray knows no gentler way while it is busy."""
        import ray

        with self._lock:
            actor = self._actors.get(worker)
        if actor is not None:
            ray.kill(actor)

    def signal(self, number: int) -> None:
        """Actors cannot be signalled: whatever it is, they end."""
        for worker in self._workers():
            self.end(worker)

    def pause(self) -> None:
        """Ray's actors do not mind."""

    def silence(self) -> float:
        """Ray itself watches the node."""
        return 0.0

    def terminate(self, grace: float = GRACE_SECONDS) -> None:
        """Ends all workers."""
        ends = [self._ends[worker] for worker in self._workers()]
        for worker in self._workers():
            self.end(worker)
        concurrent.futures.wait(ends, grace)

    def close(self, limit: float = 5.0) -> None:
        """Lets go of the node."""
        self.terminate(limit)

    # ------------------------------------------------------------------------------------- private

    def _workers(self) -> List[int]:
        with self._lock:
            return list(self._actors)

    def _ended(self, worker: int, name: str, done: concurrent.futures.Future[Any]) -> None:
        """Tells what came of a worker."""
        from ray.exceptions import RayTaskError

        error = done.exception()
        code = 0
        if error is None:
            self._outcomes.results[name] = done.result()
        elif isinstance(error, RayTaskError):
            code = 1
            self._outcomes.errors[name] = error
            text = str(error) or "".join(traceback.format_exception_only(type(error), error))
            self._output(worker, STDERR, f"{text.rstrip()}\n".encode())
        else:
            code = _LOST
        self.end(worker)  # its process is of no use any more
        self._exited(worker, code)

    def _exited(self, worker: int, code: int) -> None:
        with self._lock:
            known = self._actors.pop(worker, None) is not None
        if known:
            self._running.add(self._node["NodeID"], -1)
        for channel in (STDOUT, STDERR):
            self._output(worker, channel, b"")
        self._report(WorkerExited(self.host, worker, code))
