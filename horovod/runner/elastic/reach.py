# SPDX-License-Identifier: Apache-2.0
"""How the hosts of an elastic job reach its store, and its local workers, while hosts come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, Optional, Sequence, Tuple

from horovod.rendezvous.network import interface_address, is_local
from horovod.runner.addresses import source_address

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer


class Reach:
    """Listens on the way to each host, once there is one; workers of this machine use its loopback address.

    Args:
        store: of the job; serves on the loopback address already.
        nics: interfaces the user chose for the traffic between hosts.
    """

    def __init__(self, store: StoreServer, nics: Optional[Sequence[str]] = None) -> None:
        self._store, self._nics = store, nics
        self._ports: Dict[str, int] = {store.address: store.port}
        self._local: Dict[str, bool] = {}
        self._towards: Dict[str, str] = {}  # host -> this machine's address on the way to it

    def is_local(self, host: str) -> bool:
        """Whether a host is this machine."""
        if host not in self._local:
            self._local[host] = is_local(host)
        return self._local[host]

    def store_for(self, host: str) -> Tuple[str, int]:
        """Where workers of a host reach the store. Raises ValueError for a host that cannot be found."""
        if self.is_local(host):
            return self._store.address, self._store.port
        address = interface_address(self._nics[0]) if self._nics else source_address(host)
        if address not in self._ports:
            self._ports[address] = self._store.listen_also(address)
        self._towards[host] = address
        return address, self._ports[address]

    def advertised(self, hosts: Iterable[str]) -> Dict[str, str]:
        """The addresses that workers of this machine tell the others, in a world on these hosts."""
        hosts = list(hosts)
        others = [self._towards[host] for host in hosts if host in self._towards]
        return {host: others[0] for host in hosts if self.is_local(host)} if others else {}
