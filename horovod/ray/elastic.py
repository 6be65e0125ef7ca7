# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs by their earlier names: ElasticRayExecutor, RayHostDiscovery; and a discovery for tests."""

from __future__ import annotations

import random
import time
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

from horovod.ray.adapter import Callbacks
from horovod.ray.elastic_v2 import ElasticParams, RayHostDiscovery
from horovod.ray.runner import RayExecutor
from horovod.ray.settings import MiniSettings, create_settings
from horovod.runner.elastic.discovery import HostDiscovery

__all__ = ["ElasticRayExecutor", "ElasticSettings", "RayHostDiscovery", "TestDiscovery"]


class TestDiscovery(RayHostDiscovery):
    """Pretends that nodes of the cluster come and go, to try elastic training on a steady cluster.

    Args:
        min_hosts, max_hosts: how many nodes there seem to be.
        change_frequency_s: seconds between changes.
        use_gpu, cpus_per_worker, gpus_per_worker: as for RayHostDiscovery.
        verbose: print each change.
        _graceful: whether workers on a node that goes leave in good order; False: they are killed.
    """

    __test__ = False  # not one of pytest's

    def __init__(
        self,
        min_hosts: int,
        max_hosts: int,
        change_frequency_s: float,
        use_gpu: bool = False,
        cpus_per_worker: float = 1,
        gpus_per_worker: int = 1,
        cpus_per_slot: Optional[float] = None,
        gpus_per_slot: Optional[int] = None,
        verbose: bool = True,
        _graceful: bool = True,
    ) -> None:
        super().__init__(use_gpu, cpus_per_worker, gpus_per_worker, cpus_per_slot, gpus_per_slot)
        self._fewest, self._most, self._period = min_hosts, max_hosts, change_frequency_s
        self._verbose, self._graceful = verbose, _graceful
        self._shown: List[str] = []
        self._next_change = 0.0
        self._random = random.Random(0)

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        """Some of the nodes there are, one more or less from time to time."""
        there = super().find_available_hosts_and_slots()
        self._shown = [host for host in self._shown if host in there]
        if time.monotonic() >= self._next_change or len(self._shown) < self._fewest:
            self._next_change = time.monotonic() + self._period
            self._change([host for host in there if host not in self._shown])
        return {host: there[host] for host in self._shown}

    def _change(self, hidden: List[str]) -> None:
        can_grow = bool(hidden) and len(self._shown) < self._most
        can_shrink = len(self._shown) > self._fewest
        while hidden and len(self._shown) < self._fewest:
            self._shown.append(hidden.pop())
            can_grow = can_shrink = False
        if can_grow and (not can_shrink or self._random.random() < 0.5):
            self._shown.append(self._random.choice(hidden))
        elif can_shrink:
            gone = self._random.choice(self._shown[1:] or self._shown)
            self._shown.remove(gone)
            if not self._graceful:
                self.kill_workers(gone)
        if self._verbose:
            print(f"TestDiscovery: hosts are {', '.join(self._shown)}", flush=True)


@dataclass
class ElasticSettings(MiniSettings):
    """Made by ElasticRayExecutor.create_settings; `discovery` may be set to one of your own."""

    min_num_proc: int = 1
    max_num_proc: Optional[int] = None
    reset_limit: Optional[int] = None
    elastic_timeout: float = 600
    discovery: Optional[HostDiscovery] = None


class ElasticRayExecutor:
    """Elastic jobs by their earlier interface; RayExecutor(min_workers=...) does the same.

    Args:
        settings: made by `create_settings`.
        use_gpu: whether ranks have GPUs.
        cpus_per_slot: CPUs that Ray sets aside for each rank.
        gpus_per_slot: GPUs of each; 1 by default.
        env_vars: variables for the ranks.
        override_discovery: ask Ray for its nodes; False: settings.discovery says.
    """

    @staticmethod
    def create_settings(
        min_num_proc: int = 1,
        max_num_proc: Optional[int] = None,
        reset_limit: Optional[int] = None,
        elastic_timeout: float = 600,
        timeout_s: float = 30,
        ssh_identity_file: Optional[str] = None,
        nics: Optional[Any] = None,
        min_np: Optional[int] = None,
        max_np: Optional[int] = None,
        **kwargs: Any,
    ) -> ElasticSettings:
        """Settings of an elastic job; min_np and max_np are older names.

        Args:
            min_num_proc, max_num_proc: fewest and most ranks.
            reset_limit: how often the job may re-form, other than for newcomers.
            elastic_timeout: seconds to wait for min_num_proc ranks.
            timeout_s: how long ranks wait for each other in hvd.init().
            ssh_identity_file, kwargs: accepted for compatibility: nothing here uses ssh.
            nics: interfaces for the traffic between hosts.
        """
        for old, new in ((min_np, "min_num_proc"), (max_np, "max_num_proc")):
            if old is not None:
                warnings.warn(f"use {new}", DeprecationWarning, stacklevel=2)
        usual = create_settings(timeout_s, ssh_identity_file, nics=nics)
        return ElasticSettings(
            **vars(usual),
            min_num_proc=min_num_proc if min_np is None else min_np,
            max_num_proc=max_num_proc if max_np is None else max_np,
            reset_limit=reset_limit,
            elastic_timeout=elastic_timeout,
        )

    def __init__(
        self,
        settings: ElasticSettings,
        use_gpu: bool = False,
        cpus_per_slot: float = 1,
        gpus_per_slot: Optional[int] = None,
        env_vars: Optional[Dict[str, str]] = None,
        override_discovery: bool = True,
    ) -> None:
        if gpus_per_slot and not use_gpu:
            raise ValueError("gpus_per_slot is set, but use_gpu is False. use_gpu must be True if it is set.")
        if gpus_per_slot is not None and gpus_per_slot < 1:
            raise ValueError(f"gpus_per_slot must be >= 1: Got {gpus_per_slot}.")
        warnings.warn(
            "ElasticRayExecutor is deprecated: use RayExecutor(min_workers=...)",
            DeprecationWarning,
            stacklevel=2,
        )
        self._env_vars = dict(env_vars or {})
        self._executor = RayExecutor(settings, min_workers=settings.min_num_proc)
        self._executor.params = ElasticParams(
            cpus_per_slot, use_gpu, gpus_per_slot, settings.min_num_proc, settings.max_num_proc,
            settings.reset_limit, None, settings.elastic_timeout, override_discovery,
        )  # fmt: skip

    def start(self) -> None:
        """Gets ready; workers are started by `run`."""
        self._executor.start(extra_env_vars=self._env_vars)

    def run(self, worker_fn: Callable[[], Any], callbacks: Callbacks = None) -> List[Any]:
        """Calls worker_fn on every worker; the results of those that ended well, by rank."""
        return self._executor.run(worker_fn, callbacks=callbacks)
