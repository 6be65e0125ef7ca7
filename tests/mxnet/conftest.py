# SPDX-License-Identifier: Apache-2.0
"""Worlds of MXNet ranks, started once for the session.

MXNet 1.9.1 needs an old numpy and so an environment of its own: run these tests with `make test-mxnet`.
"""

from __future__ import annotations

import functools
from typing import Dict

import pytest
from world import World

pytest.importorskip(
    "mxnet", reason="MXNet is not installed here; it has an environment of its own (make test-mxnet)"
)

_worlds: Dict[int, World] = {}


@pytest.fixture(params=[2, 3])
def world(request):
    """Ranks with MXNet; a world that broke is replaced."""
    return _world_of(request.param)


@pytest.fixture
def pair():
    """As `world`, two ranks."""
    return _world_of(2)


@pytest.fixture
def trio():
    """As `world`, three ranks."""
    return _world_of(3)


def _world_of(size):
    if size not in _worlds or _worlds[size].broken:
        _worlds[size] = World(size, env={"MXNET_CPU_WORKER_NTHREADS": "2"})
        _worlds[size].run = functools.partial(_worlds[size].run, timeout=300)  # machines may be busy
    return _worlds[size]


@pytest.fixture(scope="session", autouse=True)
def _end_mxnet_worlds():
    yield
    for world in _worlds.values():
        if not world.broken:
            world.close()
    _worlds.clear()
