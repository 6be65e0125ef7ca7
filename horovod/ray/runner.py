# SPDX-License-Identifier: Apache-2.0
"""RayExecutor: ranks in the actors of a Ray cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from horovod.common import config
from horovod.ray.adapter import Adapter, Callbacks
from horovod.ray.client import RemoteAdapter
from horovod.ray.coordinator import Coordinator
from horovod.ray.elastic_v2 import ElasticParams
from horovod.ray.relay import relay
from horovod.ray.settings import MiniSettings, create_settings
from horovod.ray.static import StaticAdapter
from horovod.ray.strategy import ColocatedStrategy, PGStrategy, Placed
from horovod.ray.worker import BaseHorovodWorker

__all__ = ["BaseHorovodWorker", "Coordinator", "MiniSettings", "RayExecutor", "StaticParams"]


@dataclass
class StaticParams:
    """A fixed number of workers: see RayExecutor."""

    cpus_per_worker: float = 1
    use_gpu: bool = False
    gpus_per_worker: Optional[int] = None
    num_workers: Optional[int] = None
    num_hosts: Optional[int] = None
    num_workers_per_host: int = 1
    use_current_placement_group: bool = True

    @property
    def elastic(self) -> bool:
        """Whether workers may come and go."""
        return False

    @property
    def adapter(self) -> type:
        """Who does the work."""
        return StaticAdapter

    def make_adapter(self, settings: Any, environment: Dict[str, str]) -> StaticAdapter:
        """An adapter that is not started."""
        assert (self.num_workers is None) != (self.num_hosts is None), (
            "Either `num_workers` or `num_hosts` must be set, and not both."
        )
        strategy: Placed
        if self.num_workers is None:
            strategy = ColocatedStrategy(
                settings, self.num_hosts or 0, self.num_workers_per_host, self.use_gpu, self.cpus_per_worker,
                self.gpus_per_worker,
            )  # fmt: skip
        else:
            strategy = PGStrategy(
                settings, self.num_workers, self.use_gpu, self.cpus_per_worker, self.gpus_per_worker,
                force_create_placement_group=not self.use_current_placement_group,
            )  # fmt: skip
        return StaticAdapter(settings, strategy, environment)


class RayExecutor:
    """Runs functions on the ranks of a Horovod job in a Ray cluster.

        ray.init()
        executor = RayExecutor(RayExecutor.create_settings(timeout_s=30), num_workers=4)
        executor.start()
        results = executor.run(train)          # train() calls hvd.init(); one result for each rank
        executor.shutdown()

    Args:
        settings: made by `create_settings`; None for the usual.
        num_workers: number of ranks, on as few nodes as possible.
        num_hosts: instead of num_workers: this many nodes, with num_workers_per_host ranks on each.
        num_workers_per_host: see num_hosts.
        cpus_per_worker: CPUs that Ray sets aside for each rank.
        use_gpu: whether ranks have GPUs.
        gpus_per_worker: how many each; 1 by default.
        use_current_placement_group: inside a placement group (a trial of Ray Tune), put the ranks there.
        min_workers: makes the job elastic: it needs at least this many ranks and survives the loss of others.
        max_workers: the most ranks of an elastic job; by default as many as the cluster has room for.
        reset_limit: how often an elastic job may re-form, other than for newcomers.
        cooldown_range: seconds, least and most, until an elastic job tries a host again that failed.
        elastic_timeout: seconds that an elastic job waits for min_workers.
        override_discovery: whether an elastic job asks Ray for its nodes; False: settings.discovery says.
    """

    @classmethod
    def create_settings(
        cls,
        timeout_s: float = 30,
        ssh_identity_file: Optional[str] = None,
        ssh_str: Optional[str] = None,
        placement_group_timeout_s: float = 100,
        nics: Optional[Any] = None,
    ) -> MiniSettings:
        """Settings for an executor.

        Args:
            timeout_s: how long ranks wait for each other in hvd.init().
            ssh_identity_file: accepted for compatibility: nothing here uses ssh.
            ssh_str: written to ssh_identity_file, with mode 0600, if there is no such file.
            placement_group_timeout_s: how long `start` waits for room in the cluster.
            nics: interfaces for the traffic between hosts, e.g. {"eth0"}; by default those that Ray uses.
        """
        return create_settings(timeout_s, ssh_identity_file, ssh_str, placement_group_timeout_s, nics)

    def __init__(
        self,
        settings: Any = None,
        num_workers: Optional[int] = None,
        num_hosts: Optional[int] = None,
        num_workers_per_host: int = 1,
        cpus_per_worker: float = 1,
        use_gpu: bool = False,
        gpus_per_worker: Optional[int] = None,
        use_current_placement_group: bool = True,
        min_workers: Optional[int] = None,
        max_workers: Optional[int] = None,
        reset_limit: Optional[int] = None,
        cooldown_range: Optional[Tuple[int, int]] = None,
        elastic_timeout: float = 600,
        override_discovery: bool = True,
    ) -> None:
        if max_workers and not (min_workers and min_workers > 0):
            raise ValueError(
                "`max_workers` provided without any positive `min_workers`. For an elastic job, set both"
            )
        if min_workers and num_workers:
            raise ValueError(
                "Both `min_workers` and `num_workers` provided. Set `min_workers` for an elastic job, or "
                "`num_workers` for one of fixed size"
            )
        if gpus_per_worker and not use_gpu:
            raise ValueError(
                "gpus_per_worker is set, but use_gpu is False. Set use_gpu=True, or leave it out."
            )
        if gpus_per_worker is not None and gpus_per_worker < 1:
            raise ValueError(f"gpus_per_worker must be >= 1: Got {gpus_per_worker}.")
        self.settings = settings if settings is not None else create_settings()
        self.params: Union[StaticParams, ElasticParams] = StaticParams(
            cpus_per_worker, use_gpu, gpus_per_worker, num_workers, num_hosts, num_workers_per_host,
            use_current_placement_group,
        )  # fmt: skip
        if min_workers:
            self.params = ElasticParams(
                cpus_per_worker, use_gpu, gpus_per_worker, min_workers, max_workers, reset_limit,
                cooldown_range, elastic_timeout, override_discovery,
            )  # fmt: skip
        self.adapter: Union[None, Adapter, RemoteAdapter] = None

    def start(
        self,
        executable_cls: Optional[type] = None,
        executable_args: Optional[Sequence[Any]] = None,
        executable_kwargs: Optional[Dict[str, Any]] = None,
        extra_env_vars: Optional[Dict[str, str]] = None,
    ) -> None:
        """Starts the ranks' actors.

        Args:
            executable_cls: a class of which each rank makes an object, for `execute`.
            executable_args, executable_kwargs: arguments of that class.
            extra_env_vars: variables for the ranks, set before anything of the user's is imported there.
        """
        if self.adapter is not None:
            self.shutdown()
        environment = _settings_of_this_process()
        adapter = self._make_adapter(environment)
        adapter.start(executable_cls, executable_args, executable_kwargs, extra_env_vars)
        self.adapter = adapter

    def run(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Dict[str, Any]] = None,
        callbacks: Callbacks = None,
    ) -> List[Any]:
        """Calls fn(*args, **kwargs) on every rank; returns the results in rank order.

        Raises what a rank raises: of several failures the one that caused the others. Ranks that waited for
        it are let go, and after a failure that broke their world call hvd.init() again in the next run.

        Args:
            callbacks: called with every dictionary that ranks pass to ray_logger.log; elastic jobs only.
        """
        adapter = self._started()
        with relay(callbacks if self.params.elastic else None) as queue:
            return adapter.run(fn, args, kwargs, queue)

    def run_remote(
        self,
        fn: Callable[..., Any],
        args: Optional[Sequence[Any]] = None,
        kwargs: Optional[Dict[str, Any]] = None,
    ) -> List[Any]:
        """As `run`, without waiting: returns one reference of Ray for each rank, for ray.get."""
        return self._started().run_remote(fn, args, kwargs)

    def execute(self, fn: Callable[[Any], Any], callbacks: Callbacks = None) -> List[Any]:
        """Calls fn(executable) on every rank, with the object made by `start`; results in rank order."""
        adapter = self._started()
        with relay(callbacks if self.params.elastic else None) as queue:
            return adapter.execute(fn, queue)

    def execute_single(self, fn: Callable[[Any], Any]) -> Any:
        """Calls fn(executable) on rank 0 alone."""
        return self._started().execute_single(fn)

    def shutdown(self) -> None:
        """Ends the ranks and gives their resources back; `start` begins anew."""
        adapter, self.adapter = self.adapter, None
        if adapter is not None:
            adapter.shutdown()

    def _started(self) -> Union[Adapter, RemoteAdapter]:
        if self.adapter is None:
            raise RuntimeError("this RayExecutor is not started: call start() first")
        return self.adapter

    def _make_adapter(self, environment: Dict[str, str]) -> Union[Adapter, RemoteAdapter]:
        import ray

        if not ray.is_initialized():
            raise RuntimeError("Ray is not initialised: call ray.init() before RayExecutor.start()")
        if ray.util.client.ray.is_connected():
            return RemoteAdapter(self.params, self.settings, environment)
        return self.params.make_adapter(self.settings, environment)


def _settings_of_this_process() -> Dict[str, str]:
    """Horovod's settings in the user's environment, which ranks get too."""
    names = {setting.env for setting in config.BY_NAME.values()}
    return {name: value for name, value in os.environ.items() if name in names}
