# SPDX-License-Identifier: Apache-2.0
"""The nodes of a Ray cluster by names that people can read and that tell them apart."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence

from horovod.ray.room import Resources, workers_in

Node = Mapping[str, Any]  # as in ray.nodes()


def name_of(node: Node) -> str:
    """E.g. "gpu7-1f0c22aa": the machine, and the beginning of the node's id, as a machine may run several."""
    return f"{node['NodeManagerHostname']}-{node['NodeID'][:8]}"


def find_node(nodes: Sequence[Node], name: str) -> Optional[Node]:
    """The living node of a name: of ours, or the node's id, its machine's name or address."""
    for node in nodes:
        known = (name_of(node), node["NodeID"], node["NodeManagerHostname"], node["NodeManagerAddress"])
        if node["Alive"] and name in known:
            return node
    return None


def slots_by_name(nodes: Sequence[Node], worker: Resources) -> Dict[str, int]:
    """How many workers each living node has room for, if nobody else uses it."""
    found = {name_of(node): workers_in(node["Resources"], worker) for node in nodes if node["Alive"]}
    return {name: slots for name, slots in found.items() if slots > 0}
