# SPDX-License-Identifier: Apache-2.0
"""Where workers go in the cluster: packed, an equal number on each of several hosts, or into bundles that
the caller already has (a trial of Ray Tune)."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from horovod.ray.room import Resources, reserve, resources_of_worker, show, show_bundles, workers_in
from horovod.ray.settings import seconds_for_room


class Placed:
    """Where each worker goes: a placement group, and for each worker its bundle (-1: any that has room)."""

    def __init__(self, settings: Any, worker: Resources) -> None:
        self.settings = settings
        self.worker = worker
        self.placement_group: Any = None
        self._ours = False

    def bundles(self) -> List[Resources]:
        """What to ask the cluster for."""
        raise NotImplementedError

    def places(self) -> List[int]:
        """The bundle of each worker."""
        raise NotImplementedError

    def create_workers(self, worker_class: type, env_vars: Optional[Dict[str, str]] = None) -> List[Any]:
        """One actor for each worker, not necessarily running yet."""
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if self.placement_group is None:
            self._reserve()
        remote_class = ray.remote(worker_class)
        return [
            remote_class.options(
                num_cpus=self.worker["CPU"],
                num_gpus=self.worker.get("GPU", 0),
                runtime_env={"env_vars": env_vars} if env_vars else None,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    self.placement_group, placement_group_bundle_index=bundle
                ),
            ).remote()
            for bundle in self.places()
        ]

    def shutdown(self) -> None:
        """Gives the room back, unless it is the caller's."""
        if self._ours and self.placement_group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self.placement_group)
        self.placement_group = None

    def _reserve(self) -> None:
        self.placement_group = reserve(self.bundles(), self._spread(), seconds_for_room(self.settings))
        self._ours = True

    def _spread(self) -> str:
        return "PACK"


class ColocatedStrategy(Placed):
    """The same number of workers on each of several hosts."""

    def __init__(
        self,
        settings: Any,
        num_hosts: int,
        num_workers_per_host: int,
        use_gpu: bool = False,
        cpus_per_worker: float = 1,
        gpus_per_worker: Optional[int] = None,
    ) -> None:
        super().__init__(settings, resources_of_worker(cpus_per_worker, use_gpu, gpus_per_worker or 1))
        self.num_hosts = num_hosts
        self.num_workers_per_host = num_workers_per_host

    @property
    def num_workers(self) -> int:
        """All together."""
        return self.num_hosts * self.num_workers_per_host

    def bundles(self) -> List[Resources]:
        """One for each host."""
        host = {name: need * self.num_workers_per_host for name, need in self.worker.items()}
        return [host] * self.num_hosts

    def places(self) -> List[int]:
        """Host after host."""
        return [number // self.num_workers_per_host for number in range(self.num_workers)]

    def _spread(self) -> str:
        return "STRICT_SPREAD"


class PGStrategy(Placed):
    """Any number of workers on as few hosts as possible; in the caller's placement group if there is one."""

    def __init__(
        self,
        settings: Any,
        num_workers: int,
        use_gpu: bool = False,
        cpus_per_worker: float = 1,
        gpus_per_worker: Optional[int] = None,
        placement_group: Any = None,
        force_create_placement_group: bool = False,
    ) -> None:
        super().__init__(settings, resources_of_worker(cpus_per_worker, use_gpu, gpus_per_worker or 1))
        self.num_workers = num_workers
        if placement_group is None and not force_create_placement_group:
            from ray.util import get_current_placement_group

            placement_group = get_current_placement_group()
        if placement_group is not None:
            check_fits(placement_group.bundle_specs, self.worker, num_workers)
            self.placement_group = placement_group

    def bundles(self) -> List[Resources]:
        """One for each worker."""
        return [self.worker] * self.num_workers

    def places(self) -> List[int]:
        """One bundle each, or whichever of the caller's has room."""
        return list(range(self.num_workers)) if self._ours else [-1] * self.num_workers


def check_fits(bundles: Sequence[Resources], worker: Resources, count: int) -> None:
    """Raises ValueError if a placement group has no room for so many workers, even when it is empty."""
    fitting = sum(workers_in(bundle, worker) for bundle in bundles)
    if fitting < count:
        raise ValueError(
            f"{count} workers of {show(worker)} do not fit into the current placement group, which has room "
            f"for {fitting}: its bundles are {show_bundles(bundles)}. Give the trial more bundles, or set "
            "use_current_placement_group=False"
        )
