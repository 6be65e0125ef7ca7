# SPDX-License-Identifier: Apache-2.0
"""Worlds of jax ranks, started once for the session: jax must see its settings before it is imported."""

from __future__ import annotations

import functools
from typing import Dict

import pytest
from world import World

pytest.importorskip("jax", reason="jax is not installed")

ENV = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
_worlds: Dict[int, World] = {}


@pytest.fixture(params=[2, 3])
def world(request):
    """Ranks with jax, 64-bit types switched on; a world that broke is replaced."""
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
        _worlds[size] = World(size, env=ENV)
        _worlds[size].run = functools.partial(_worlds[size].run, timeout=300)  # machines may be busy
    return _worlds[size]


@pytest.fixture(scope="session", autouse=True)
def _end_jax_worlds():
    yield
    for world in _worlds.values():
        if not world.broken:
            world.close()
    _worlds.clear()
