# SPDX-License-Identifier: Apache-2.0
"""Ray Train: a backend with which a DataParallelTrainer's workers are the ranks of a Horovod job.

    from ray.train import ScalingConfig
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
    from horovod.ray import HorovodConfig

    four = ScalingConfig(num_workers=4)
    DataParallelTrainer(train, backend_config=HorovodConfig(), scaling_config=four).fit()

Ray Train asks anew for every group of workers it starts: after a failure (max_failures), for another
number of workers. Ranks and local ranks are those of ray.train.get_context().
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any, Dict, Optional, Set, Tuple

import ray
from ray.train.backend import Backend, BackendConfig

from horovod.ray.coordinator import Coordinator


@dataclass
class HorovodConfig(BackendConfig):
    """How the ranks of a Ray Train run meet.

    Attributes:
        nics: interfaces for the traffic between hosts, e.g. {"eth0"}; by default those that Ray uses.
        timeout_s: how long ranks wait for each other in hvd.init().
        verbose, key, ssh_port, ssh_identity_file, ssh_str, placement_group_timeout_s: accepted for
            compatibility: nothing here uses ssh, and every group of workers has a secret of its own.
    """

    nics: Optional[Set[str]] = None
    verbose: int = 1
    key: Optional[str] = None
    ssh_port: Optional[int] = None
    ssh_identity_file: Optional[str] = None
    ssh_str: Optional[str] = None
    timeout_s: int = 300
    placement_group_timeout_s: int = 100

    @property
    def backend_cls(self) -> type:
        """Ray Train's way to the class that does the work."""
        return HorovodBackend


class HorovodBackend(Backend):
    """Tells every worker of a group who it is, in which job."""

    share_cuda_visible_devices = True  # index hvd.local_rank() is the rank's own

    def on_start(self, worker_group: Any, backend_config: HorovodConfig) -> None:
        """A group of workers has started; the store for it is served in this process, the controller's."""
        self._end()
        self._coordinator = Coordinator(backend_config)
        for rank, (host, node) in enumerate(worker_group.execute(_where)):
            self._coordinator.register(host, node, rank)
        worker_group.execute(_take, self._coordinator.finalize_registration())

    def on_shutdown(self, worker_group: Any, backend_config: HorovodConfig) -> None:
        """The group is about to end."""
        self._end()

    def _end(self) -> None:
        before: Optional[Coordinator] = getattr(self, "_coordinator", None)
        if before is not None:
            before.close()


def _where() -> Tuple[str, str]:
    return socket.gethostname(), str(ray.get_runtime_context().get_node_id())


def _take(variables: Dict[int, Dict[str, str]]) -> None:
    from ray.train import get_context

    os.environ.update(variables[get_context().get_world_rank()])
