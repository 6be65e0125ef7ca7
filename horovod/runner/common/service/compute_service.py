# SPDX-License-Identifier: Apache-2.0
"""The compute service under its old path; it lives in horovod.data."""

from __future__ import annotations

from horovod.data.compute_client import ComputeClient
from horovod.data.compute_service import ComputeService

__all__ = ["ComputeClient", "ComputeService"]
