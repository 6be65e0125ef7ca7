# SPDX-License-Identifier: Apache-2.0
"""Room for workers in a cluster: placement groups, and what is missing when there is none."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Sequence

Resources = Dict[str, float]


def resources_of_worker(cpus: float, use_gpu: bool, gpus: int) -> Resources:
    """What one worker takes, e.g. {"CPU": 1, "GPU": 1}."""
    return {"CPU": float(cpus), **({"GPU": float(gpus)} if use_gpu else {})}


def workers_in(bundle: Resources, worker: Resources) -> int:
    """How many workers fit into a bundle or a node."""
    counts = [int((bundle.get(name, 0.0) + 1e-6) // need) for name, need in worker.items() if need > 0]
    return min(counts, default=1 << 20)


def reserve(bundles: Sequence[Resources], strategy: str, timeout: float) -> Any:
    """A placement group, once it is ready.

    Raises:
        TimeoutError: there is no room; the text says what is missing.
    """
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    group = placement_group([dict(one) for one in bundles], strategy=strategy)
    began = time.monotonic()
    if group.wait(timeout_seconds=timeout):
        return group
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    missing = shortage(bundles, strategy, nodes, ray.available_resources())
    remove_placement_group(group)
    raise TimeoutError(
        f"Placement group creation timed out. Waited {time.monotonic() - began:.0f} s for "
        f"{show_bundles(bundles)}{_MEANING.get(strategy, '')}: {missing}. Ask for less, add nodes, or wait "
        "longer (placement_group_timeout_s of RayExecutor.create_settings)"
    )


_MEANING = {"STRICT_SPREAD": ", each on a node of its own", "STRICT_PACK": ", all on one node"}


def shortage(bundles: Sequence[Resources], strategy: str, nodes: Sequence[Resources], free: Resources) -> str:
    """Why bundles do not fit: e.g. "the cluster has CPU 2 of 4". Pure.

    Args:
        nodes: what each node has in total.
        free: what the whole cluster has free.
    """
    needed, total = _sum(bundles), _sum(nodes)
    lacking = [name for name, need in needed.items() if total.get(name, 0.0) < need]
    if lacking:
        return "the cluster has only " + ", ".join(
            f"{total.get(name, 0.0):g} {name} of {needed[name]:g}" for name in lacking
        )
    largest = max(bundles, key=lambda one: sum(one.values()))
    fitting = sum(1 for node in nodes if workers_in(node, largest) >= 1)
    if strategy == "STRICT_SPREAD" and fitting < len(bundles):
        return f"{len(bundles)} nodes with {show(largest)} are needed, {fitting} of {len(nodes)} have that"
    if not fitting:
        return f"no node has {show(largest)} by itself"
    busy = [name for name, need in needed.items() if free.get(name, 0.0) < need]
    if busy:
        return "others use the cluster: free are " + ", ".join(
            f"{free.get(name, 0.0):g} {name} of {needed[name]:g}" for name in busy
        )
    return "the resources are there, but not on the same nodes"


def show(resources: Resources) -> str:
    """E.g. "2 CPU, 1 GPU"."""
    return ", ".join(f"{amount:g} {name}" for name, amount in resources.items())


def show_bundles(bundles: Sequence[Resources]) -> str:
    """E.g. "2 x (2 CPU, 1 GPU)"."""
    kinds: List[str] = [show(one) for one in bundles]
    return " and ".join(f"{kinds.count(kind)} x ({kind})" for kind in dict.fromkeys(kinds))


def _sum(parts: Sequence[Resources]) -> Resources:
    total: Resources = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0.0) + amount
    return total
