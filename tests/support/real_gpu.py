# SPDX-License-Identifier: Apache-2.0
"""Worlds of ranks that share one real GPU, whichever way their tensors are to go.

NCCL refuses two ranks on one GPU of one host, so each rank says that it is on a host of its own; it then
talks over sockets, which is slow and right.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List

from world import World

WAYS = ("direct", "NCCL", "host")
_COUNTER = {"direct": "direct_batches", "NCCL": "nccl_batches", "host": "host_batches"}
_NCCL_ALONE = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}


def way_env(way: str) -> Dict[str, str]:
    """What all ranks of a world need so that their GPU tensors go this way."""
    env = {
        "HOROVOD_GPU_OPERATIONS": way,
        "HOROVOD_TIMELINE": "DYNAMIC",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    return {**env, **_NCCL_ALONE} if way == "NCCL" else env


def enter() -> int:
    """In each rank, before its first GPU tensor: takes the GPU. Returns the rank."""
    import torch

    import horovod.torch as hvd

    os.environ["NCCL_HOSTID"] = f"rank-{os.getpid()}"
    torch.cuda.set_device(0)
    return hvd.rank()


def report() -> Dict[str, Any]:
    """What the engine says about its GPU paths."""
    from horovod.common import gpu_report

    return gpu_report.read()


def went(way: str, sets: List[Dict[str, Any]]) -> bool:
    """Whether all batches between ranks went this way."""
    wanted = _COUNTER[way]
    others = [name for name in _COUNTER.values() if name != wanted]
    shared = [one for one in sets if one["ranks"] > 1]
    return bool(shared) and all(one[wanted] > 0 and not any(one[name] for name in others) for one in shared)


def gpu_world(np: int, way: str) -> World:
    """A world of ranks on GPU 0, each of which has entered."""
    world = World(np, env=way_env(way))
    world.run(enter, timeout=120)
    return world


def show(value: Any) -> str:
    """For messages of failed assertions."""
    return json.dumps(value, indent=1)
