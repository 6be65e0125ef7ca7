# SPDX-License-Identifier: Apache-2.0
"""Tests on a real GPU, which all ranks share: `make test-gpu`. Without one they are skipped."""

from __future__ import annotations

import pytest


def _has_gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def pytest_collection_modifyitems(config: pytest.Config, items: list) -> None:
    here = [item for item in items if "/tests/gpu/" in str(item.path)]
    if here and not _has_gpu():
        for item in here:
            item.add_marker(pytest.mark.skip(reason="no CUDA device on this machine"))


@pytest.fixture(
    scope="module",
    params=[(np, way) for way in ("direct", "NCCL", "host") for np in (2, 4)],
    ids=lambda p: f"{p[1]}-{p[0]}",
)
def world(request):
    """Worlds of 2 and 4 ranks on one GPU, each way."""
    from real_gpu import gpu_world

    np, way = request.param
    made = gpu_world(np, way)
    made.way = way
    yield made
    made.close()
