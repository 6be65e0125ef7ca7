# SPDX-License-Identifier: Apache-2.0
"""From Ray workers that have said where they are to ranks that meet: placement, a store, variables.

    coordinator = Coordinator(settings)
    coordinator.register("node7", node_id, 0)            # each worker: host, Ray node, rank
    variables = coordinator.finalize_registration()      # rank -> who it is, and where all meet

The store lives in the process that has the coordinator (the driver, an adapter or Ray Train's controller),
which the workers' nodes can reach as they reach Ray itself.
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Set

from horovod.ray.settings import interfaces, seconds_to_meet
from horovod.rendezvous import auth
from horovod.rendezvous.network import interface_address
from horovod.rendezvous.readers import own
from horovod.rendezvous.store_server import StoreServer
from horovod.runner.placement import SlotInfo, place_ranks
from horovod.runner.worker_env import worker_env


class Registered(NamedTuple):
    """A worker: the name of its machine, and the Ray node it runs on."""

    hostname: str
    node_id: str


class Coordinator:
    """The ranks of one job on Ray, and the store they meet in. Use close(), or let go of it.

    Args:
        settings: e.g. a MiniSettings; nics and timeout_s are looked at.
    """

    def __init__(self, settings: Any = None) -> None:
        self._settings = settings
        self._workers: Dict[int, Registered] = {}
        self._store: Optional[StoreServer] = None

    @property
    def world_size(self) -> int:
        """How many workers have been registered."""
        return len(self._workers)

    @property
    def hostnames(self) -> Set[str]:
        """The Ray nodes of the workers: machines may share a name, and one may run several nodes."""
        return {worker.node_id for worker in self._workers.values()}

    @property
    def node_id_string(self) -> str:
        """The nodes and their numbers of workers, e.g. "a1b2:2,c3d4:2"."""
        nodes = [worker.node_id for _, worker in sorted(self._workers.items())]
        return ",".join(f"{node}:{nodes.count(node)}" for node in dict.fromkeys(nodes))

    def register(self, hostname: str, node_id: str, world_rank: int) -> None:
        """A worker has started and will be this rank."""
        self._workers[world_rank] = Registered(hostname, node_id)

    def place(self) -> List[SlotInfo]:
        """Where the ranks are, by Ray node."""
        ranks = sorted(self._workers)
        if ranks != list(range(len(ranks))):
            raise ValueError(f"these are not the ranks of a world: {ranks}")
        return place_ranks([self._workers[rank].node_id for rank in ranks])

    def finalize_registration(self) -> Dict[int, Dict[str, str]]:
        """All variables of each rank. Ranks of one Ray node share memory; the machine's name is shown."""
        store, nics = self._serving(), interfaces(self._settings)
        found = {}
        for slot in self.place():
            env = worker_env({}, slot, store.address, store.port, store.secret, nics)
            env.update({"HOROVOD_HOSTNAME": self._workers[slot.rank].hostname, own.HOST_KEY: slot.hostname})
            limit = seconds_to_meet(self._settings)
            if limit is not None:
                env["HOROVOD_GLOO_TIMEOUT_SECONDS"] = f"{limit:g}"
            found[slot.rank] = env
        return found

    def establish_rendezvous(self) -> Dict[str, str]:
        """Where all ranks meet; for those who set the variables in two steps."""
        store = self._serving()
        return {
            own.ADDRESS: store.address,
            own.PORT: str(store.port),
            own.SECRET: own.encode_secret(store.secret),
        }

    def _serving(self) -> StoreServer:
        if self._store is None:
            self._store = StoreServer(auth.make_secret(), [self._address()], size=self.world_size)
            weakref.finalize(self, self._store.close)
        return self._store

    def lost(self, rank: int, cause: str) -> None:
        """A rank's process has ended; who waits for it in hvd.init() hears the cause at once."""
        if self._store is not None:
            self._store.lost(str(rank), cause)

    def close(self) -> None:
        """Ends the store. Idempotent."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _address(self) -> str:
        import ray

        names = interfaces(self._settings)
        return interface_address(names[0]) if names else str(ray.util.get_node_ip_address())
