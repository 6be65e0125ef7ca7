# SPDX-License-Identifier: Apache-2.0
"""Horovod on Ray clusters: executors, and a backend for Ray Train.

Importing this package does not import Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horovod.ray import ray_logger
from horovod.ray.elastic import ElasticRayExecutor, RayHostDiscovery, TestDiscovery
from horovod.ray.runner import BaseHorovodWorker, RayExecutor

if TYPE_CHECKING:
    from horovod.ray.train import HorovodConfig

__all__ = [
    "BaseHorovodWorker",
    "ElasticRayExecutor",
    "HorovodConfig",
    "RayExecutor",
    "RayHostDiscovery",
    "TestDiscovery",
    "ray_logger",
]


def __getattr__(name: str) -> Any:
    if name == "HorovodConfig":  # Ray Train takes seconds to import
        from horovod.ray.train import HorovodConfig

        return HorovodConfig
    raise AttributeError(f"module 'horovod.ray' has no attribute {name!r}")
