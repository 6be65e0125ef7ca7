# SPDX-License-Identifier: Apache-2.0
"""Where this process stands in the running world: rank, size and the like, from init to shutdown.

Owned by the life cycle (basics.py), which sets and clears it; everything else only reads it.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Optional

from horovod.common import _native
from horovod.common.exceptions import FORKED, NOT_INITIALIZED
from horovod.rendezvous.world import World


class Topology(NamedTuple):
    """This process' place among the ranks and hosts of the world."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int


_known: Optional[Topology] = None
_world: Optional[World] = None
_forked = False


def set_world(world: World) -> None:
    """The engine has started in this world."""
    global _known, _world, _forked
    lib = _native.lib()
    _known = Topology(*(getattr(lib, f"hvd_{name}")() for name in Topology._fields))
    _world, _forked = world, False


def clear() -> None:
    """The engine stops."""
    global _known, _world
    _known = _world = None


def is_known() -> bool:
    """Whether the engine runs in this process."""
    return _known is not None


def known() -> Topology:
    """This process' place. Raises ValueError where there is no engine."""
    if _known is None:
        raise ValueError(FORKED if _forked else NOT_INITIALIZED)
    return _known


def world() -> World:
    """The ranks and hosts of the running world. Raises ValueError where there is no engine."""
    known()
    assert _world is not None
    return _world


def is_forked() -> bool:
    """Whether this process was forked from one whose engine ran; it may start a world of its own."""
    return _forked


def _in_child() -> None:
    global _forked
    if _known is not None:
        _forked = True
        clear()


os.register_at_fork(after_in_child=_in_child)
