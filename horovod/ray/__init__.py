# SPDX-License-Identifier: Apache-2.0
"""Horovod on Ray clusters: executors, and a backend for Ray Train.

Importing this package imports neither Ray nor the launcher: every rank does it on its way to the first step.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from horovod.ray import ray_logger

if TYPE_CHECKING:
    from horovod.ray.elastic import ElasticRayExecutor, RayHostDiscovery, TestDiscovery
    from horovod.ray.runner import RayExecutor
    from horovod.ray.train import HorovodConfig
    from horovod.ray.worker import BaseHorovodWorker

__all__ = [
    "BaseHorovodWorker",
    "ElasticRayExecutor",
    "HorovodConfig",
    "RayExecutor",
    "RayHostDiscovery",
    "TestDiscovery",
    "ray_logger",
]

_HOMES = {
    "BaseHorovodWorker": "worker",
    "ElasticRayExecutor": "elastic",
    "HorovodConfig": "train",
    "RayExecutor": "runner",
    "RayHostDiscovery": "elastic",
    "TestDiscovery": "elastic",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"horovod.ray.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'horovod.ray' has no attribute {name!r}")
