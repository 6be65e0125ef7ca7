# SPDX-License-Identifier: Apache-2.0
"""Horovod on Ray clusters: executors, a backend for Ray Train.

Importing this package does not import Ray.
"""

from __future__ import annotations

from horovod.ray.runner import BaseHorovodWorker, RayExecutor

__all__ = ["BaseHorovodWorker", "RayExecutor"]
