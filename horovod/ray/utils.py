# SPDX-License-Identifier: Apache-2.0
"""Small helpers by the names under which others import them (Ray Train's own Horovod backend does)."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Set

from horovod.ray.settings import interfaces


def map_blocking(fn: Callable[[Any], Any], collection: Sequence[Any]) -> List[Any]:
    """Waits for what fn returns (a reference of Ray) for every item; results in order."""
    import ray

    return list(ray.get([fn(item) for item in collection]))


def detect_nics(settings: Any, all_host_names: Sequence[str] = (), node_workers: Any = None) -> Set[str]:
    """The interfaces that the settings name; none otherwise, since ranks ask the kernel for the route."""
    return set(interfaces(settings))


def nics_to_env_var(nics: Optional[Sequence[str]]) -> Dict[str, str]:
    """Variables that make ranks use these interfaces, the first of them for our own traffic."""
    names = sorted(nics or ())
    return {"HOROVOD_GLOO_IFACE": names[0], "NCCL_SOCKET_IFNAME": ",".join(names)} if names else {}
