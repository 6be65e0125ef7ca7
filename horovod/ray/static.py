# SPDX-License-Identifier: Apache-2.0
"""A fixed number of ranks in Ray actors."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence

from horovod.ray.adapter import Adapter
from horovod.ray.coordinator import Coordinator
from horovod.ray.devices import VISIBLE, visible_devices
from horovod.ray.gathering import Failed, gather, is_loss
from horovod.ray.room import show, show_bundles
from horovod.ray.settings import seconds_for_room
from horovod.ray.strategy import Placed
from horovod.ray.worker import BaseHorovodWorker, WorkerFacts

# How long workers may take to end by themselves before they are killed.
_END_SECONDS = 5.0


class StaticAdapter(Adapter):
    """The workers of one job, which all live from start() to shutdown().

    Args:
        settings: see RayExecutor.create_settings.
        strategy: where workers go.
        environment: variables for all workers, from the user's process.
    """

    def __init__(self, settings: Any, strategy: Placed, environment: Dict[str, str]) -> None:
        self.settings = settings
        self.strategy = strategy
        self.environment = environment
        self.workers: List[Any] = []  # in rank order
        self._hosts: List[str] = []  # their names, for errors
        self._coordinator: Optional[Coordinator] = None

    def start(
        self,
        executable_cls: Optional[type] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Dict[str, Any]] = None,
        extra_env_vars: Optional[Dict[str, str]] = None,
    ) -> None:
        """Starts the workers and tells them who they are; then makes the executable in each."""
        try:
            self._start(extra_env_vars or {})
            if executable_cls is not None:
                self._on_all("start_executable", executable_cls, executable_args, executable_kwargs)
        except BaseException:
            self.shutdown()
            raise

    def _start(self, extra: Dict[str, str]) -> None:
        import ray

        started = self.strategy.create_workers(BaseHorovodWorker)
        self.workers = started
        facts = self._facts(started)
        # Ranks of a node follow each other: fewer neighbours are on other nodes.
        nodes = list(dict.fromkeys(fact.node_id for fact in facts))
        order = sorted(range(len(facts)), key=lambda number: nodes.index(facts[number].node_id))
        self.workers = [started[number] for number in order]
        facts = [facts[number] for number in order]
        self._hosts = [fact.hostname for fact in facts]
        self._coordinator = Coordinator(self.settings)
        for rank, fact in enumerate(facts):
            self._coordinator.register(fact.hostname, fact.node_id, rank)
        own = self._coordinator.finalize_registration()
        gpus = _devices_by_node(facts)
        ray.get(
            [
                worker.update_env_vars.remote(
                    {**own[rank], **self.environment, **gpus.get(facts[rank].node_id, {}), **extra}
                )
                for rank, worker in enumerate(self.workers)
            ]
        )

    def _facts(self, workers: Sequence[Any]) -> List[WorkerFacts]:
        import ray
        from ray.exceptions import GetTimeoutError

        limit = seconds_for_room(self.settings)
        calls = [worker.facts.remote() for worker in workers]
        try:
            return list(ray.get(calls, timeout=limit))
        except GetTimeoutError:
            running = len(ray.wait(calls, num_returns=len(calls), timeout=0)[0])
            bundles = show_bundles(self.strategy.placement_group.bundle_specs)
            raise TimeoutError(
                f"Placement group creation timed out. {running} of {len(calls)} workers of "
                f"{show(self.strategy.worker)} run after {limit:g} s in a placement group of {bundles}, some "
                "of which others use, as a trial of Ray Tune uses the first"
            ) from None

    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Dict[str, Any]] = None,
        queue: Any = None,
    ) -> List[Any]:
        """fn(*args, **kwargs) on every rank."""
        return self._on_all("call", fn, tuple(args or ()), dict(kwargs or {}))

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Dict[str, Any]] = None,
    ) -> List[Any]:
        """The same without waiting."""
        return self._begin("call", fn, tuple(args or ()), dict(kwargs or {}))

    def execute(self, fn: Callable[[Any], Any], queue: Any = None) -> List[Any]:
        """fn(executable) on every rank."""
        return self._on_all("execute", fn)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """fn(executable) on rank 0."""
        import ray

        return ray.get(self.workers[0].execute.remote(fn))

    def shutdown(self) -> None:
        """Ends the workers and gives everything back."""
        import ray

        workers, self.workers = self.workers, []
        ends = [worker.__ray_terminate__.remote() for worker in workers]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=_END_SECONDS)
        for worker in workers:
            ray.kill(worker)
        self.strategy.shutdown()
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None

    # ------------------------------------------------------------------------------------- private

    def _begin(self, method: str, *arguments: Any) -> List[Any]:
        import ray

        shared = [ray.put(one) for one in arguments]  # sent to each node once, however many ranks it has
        return [getattr(worker, method).remote(*shared) for worker in self.workers]

    def _on_all(self, method: str, *arguments: Any) -> List[Any]:
        try:
            return gather(self._begin(method, *arguments), self._lost)
        except Failed as failed:
            self._explain(failed)

    def _lost(self, rank: int, error: BaseException) -> None:
        if self._coordinator is not None:
            self._coordinator.lost(rank, f"rank {rank} on {self._hosts[rank]} has ended: its actor is gone")

    def _explain(self, failed: Failed) -> NoReturn:
        """Raises the cause; ranks that wait for the one that failed are let go, and can start a new world."""
        from ray.exceptions import RayActorError

        if failed.broken:
            for worker in self.workers:
                worker.leave.remote()
            failed.settle()
        if not is_loss(failed.cause):
            raise failed.cause
        raise RayActorError(
            error_msg=f"rank {failed.culprit} on {self._hosts[failed.culprit]} is gone; call shutdown() and "
            f"start() to begin anew. Ray says: {failed.cause}"
        ) from failed.cause


def _devices_by_node(facts: Sequence[WorkerFacts]) -> Dict[str, Dict[str, str]]:
    """CUDA_VISIBLE_DEVICES for the workers of each node that has GPUs."""
    by_node: Dict[str, List[Sequence[str]]] = {}
    for fact in facts:  # in rank order, so in the order of local ranks
        by_node.setdefault(fact.node_id, []).append(fact.gpu_ids)
    return {node: {VISIBLE: visible_devices(ids)} for node, ids in by_node.items() if any(ids)}
