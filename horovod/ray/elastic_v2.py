# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs on Ray: workers come and go with the cluster's nodes; those that stay keep their memory."""

from __future__ import annotations

from dataclasses import dataclass
from signal import SIGKILL
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from horovod.ray.adapter import Adapter
from horovod.ray.free_slots import FreeSlots, Running
from horovod.ray.node_runner import NodeRunner, Outcomes
from horovod.ray.nodes import find_node, slots_by_name
from horovod.ray.room import Resources, resources_of_worker
from horovod.ray.settings import interfaces, seconds_to_meet
from horovod.rendezvous.network import interface_address
from horovod.runner.elastic.discovery import HostDiscovery
from horovod.runner.elastic.driver import ElasticJob
from horovod.runner.elastic.limits import Limits
from horovod.runner.settings import JobSettings
from horovod.runner.supervision import JobFailed


def __getattr__(name: str) -> Any:
    if name == "TestDiscovery":  # lives in `elastic`, which imports this module
        from horovod.ray import elastic

        return elastic.TestDiscovery
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class RayHostDiscovery(HostDiscovery):
    """The nodes of the cluster, each with as many slots as it has room for workers.

    Args:
        use_gpu: whether workers have GPUs.
        cpus_per_worker, gpus_per_worker: what each takes; cpus_per_slot and gpus_per_slot are older names.
    """

    # Set by the executor that asks: kills its workers on a host, as the loss of that host would.
    kill_workers: Callable[[str], None] = staticmethod(lambda host: None)

    def __init__(
        self,
        use_gpu: bool = False,
        cpus_per_worker: float = 1,
        gpus_per_worker: int = 1,
        cpus_per_slot: Optional[float] = None,
        gpus_per_slot: Optional[int] = None,
    ) -> None:
        cpus = cpus_per_worker if cpus_per_slot is None else cpus_per_slot
        gpus = gpus_per_worker if gpus_per_slot is None else gpus_per_slot
        self._worker = resources_of_worker(cpus, use_gpu, gpus)

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        """E.g. {"gpu7-1f0c22aa": 4}."""
        import ray

        return slots_by_name(ray.nodes(), self._worker)


@dataclass
class ElasticParams:
    """A number of workers that may change: see RayExecutor."""

    cpus_per_worker: float = 1
    use_gpu: bool = False
    gpus_per_worker: Optional[int] = None
    min_workers: int = 1
    max_workers: Optional[int] = None
    reset_limit: Optional[int] = None
    cooldown_range: Optional[Tuple[int, int]] = None
    elastic_timeout: float = 600
    override_discovery: bool = True

    @property
    def elastic(self) -> bool:
        """Whether workers may come and go."""
        return True

    @property
    def adapter(self) -> type:
        """Who does the work."""
        return ElasticAdapter

    @property
    def worker(self) -> Resources:
        """What one worker takes."""
        return resources_of_worker(self.cpus_per_worker, self.use_gpu, self.gpus_per_worker or 1)

    def make_adapter(self, settings: Any, environment: Dict[str, str]) -> ElasticAdapter:
        """An adapter that is not started."""
        return ElasticAdapter(settings, self, environment)


class _RayJob(ElasticJob):
    """An elastic job whose messages say who speaks."""

    NAME = "horovod.ray"


class ElasticAdapter(Adapter):
    """Runs elastic jobs, one after the other; between them it holds nothing.

    Args:
        settings: see RayExecutor.create_settings; with override_discovery=False, `discovery` names the nodes.
            By default: those of the cluster, with the room that others leave there.
        params: how many workers.
        environment: variables for all workers, from the user's process.
    """

    def __init__(self, settings: Any, params: ElasticParams, environment: Dict[str, str]) -> None:
        self.settings, self.params = settings, params
        self._environment = environment

    def start(
        self,
        executable_cls: Optional[type] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Dict[str, Any]] = None,
        extra_env_vars: Optional[Dict[str, str]] = None,
    ) -> None:
        """Takes the variables; workers are started by `run`, and have no executables."""
        self._environment.update({str(name): str(value) for name, value in (extra_env_vars or {}).items()})

    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Dict[str, Any]] = None,
        queue: Any = None,
    ) -> List[Any]:
        """fn(*args, **kwargs) on every worker; the results of those that ended well, by rank."""
        import ray

        outcomes, running = Outcomes(), Running()
        runners: Dict[str, NodeRunner] = {}
        call = ray.put((fn, tuple(args or ()), dict(kwargs or {})))

        def make_runner(host: str, local: bool, _: JobSettings, output: Any, report: Any) -> NodeRunner:
            runners[host] = NodeRunner(
                host, lambda name: find_node(ray.nodes(), name), self.params.worker, call, queue, outcomes,
                running, output, report,
            )  # fmt: skip
            return runners[host]

        discovery = self._discovery(running)
        if isinstance(discovery, RayHostDiscovery):
            discovery.kill_workers = lambda host: runners[host].signal(SIGKILL) if host in runners else None
        job = _RayJob(
            self._job_settings(), self._limits(), discovery, self.params.cooldown_range,
            make_runner=make_runner, addresses=[self._address()],
        )  # fmt: skip
        try:
            job.run()
        except JobFailed as failed:
            raise failed from outcomes.errors.get(failed.first.worker)
        return [outcomes.results[name] for name in job.finished]

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Dict[str, Any]] = None,
    ) -> List[Any]:
        """Not possible."""
        raise NotImplementedError(
            "ObjectRefs cannot be returned from Elastic runs as the workers are ephemeral"
        )

    def execute(self, fn: Callable[[Any], Any], queue: Any = None) -> List[Any]:
        """fn(None): there are no executables."""
        return self.run(fn, [None], queue=queue)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Not possible."""
        raise NotImplementedError(
            "Elastic mode does not support execute_single. Please use the execute method instead"
        )

    def shutdown(self) -> None:
        """Nothing is left between jobs."""

    def _discovery(self, running: Running) -> HostDiscovery:
        chosen: Optional[HostDiscovery] = getattr(self.settings, "discovery", None)
        if chosen is not None and not self.params.override_discovery:
            return chosen
        return FreeSlots(self.params.worker, running)

    def _job_settings(self) -> JobSettings:
        env = dict(self._environment)
        env.setdefault("HOROVOD_ELASTIC_TIMEOUT", f"{self.params.elastic_timeout:g}")
        return JobSettings([], 0, [], env, nics=list(interfaces(self.settings)) or None)

    def _limits(self) -> Limits:
        params = self.params
        return Limits(
            num_proc=params.min_workers,
            min_np=params.min_workers,
            max_np=params.max_workers,
            elastic_timeout=params.elastic_timeout,
            start_timeout=seconds_to_meet(self.settings) or 30.0,
            reset_limit=params.reset_limit,
        )

    def _address(self) -> str:
        import ray

        names = interfaces(self.settings)
        return interface_address(names[0]) if names else str(ray.util.get_node_ip_address())
