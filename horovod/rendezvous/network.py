# SPDX-License-Identifier: Apache-2.0
"""Which address to use: asked of the routing table, not guessed from interface names."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Sequence, Set

from horovod.rendezvous.store import StoreError

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915


@dataclass
class AddressPlan:
    """Where the store listens and how each host reaches it."""

    bind: List[str]
    store_for: Dict[str, str]  # host -> address of the store as seen from there
    local: Set[str]  # hosts that are this machine
    reasons: List[str] = field(default_factory=list)  # for --verbose


def choose_addresses(hosts: List[str], nics: Optional[List[str]] = None) -> AddressPlan:
    """Plans the store's addresses for these hosts."""
    local = {host for host in hosts if is_local(host)}
    remote = [host for host in hosts if host not in local]
    plan = AddressPlan([], {}, local)
    if not remote:
        plan.bind = [LOOPBACK]
        plan.store_for = {host: LOOPBACK for host in hosts}
        plan.reasons.append(f"all hosts are this machine: workers meet at {LOOPBACK}")
        return plan
    for host in remote:
        if nics:
            address = interface_address(nics[0])
            why = f"interface {nics[0]} was asked for"
        else:
            address = source_address(host)
            why = f"it is this machine's address on the route to {host}"
        plan.store_for[host] = address
        plan.bind.append(address)
        plan.reasons.append(f"{host} reaches the launcher at {address}: {why}")
    # Local ranks must tell their peers an address that other hosts can reach, so they use one as well.
    for host in local:
        plan.store_for[host] = plan.bind[0]
    plan.bind = list(dict.fromkeys(plan.bind))
    return plan


def is_local(host: str) -> bool:
    """Whether a host name means this machine."""
    here = ("localhost", LOOPBACK, "::1", socket.gethostname(), os.environ.get("SLURMD_NODENAME"))
    if host in here:
        return True
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False  # perhaps a name only ssh's configuration knows
    return any(str(address).startswith("127.") or can_bind(str(address)) for address in addresses)


def can_bind(address: str) -> bool:
    """An address is ours if and only if the kernel lets us bind it: no list of interfaces needed."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
            return True
        except OSError:
            return False


def own_addresses() -> List[str]:
    """The IPv4 addresses of this machine's interfaces, loopback aside."""
    found = []
    for _, name in socket.if_nameindex():
        try:
            found.append(interface_address(name))
        except ValueError:
            pass  # down, or IPv6 only
    return [address for address in dict.fromkeys(found) if not address.startswith("127.")]


def route_to(target: str) -> Optional[str]:
    """The address this machine would use towards another; None without a route."""
    try:
        family, _, _, _, where = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)  # sends nothing
            found = str(probe.getsockname()[0])
    except OSError:
        return None
    return None if found.startswith("127.") else found


def source_address(host: str) -> str:
    """The address this machine would use to talk to a host (nothing is sent)."""
    from horovod.runner.ssh import real_name

    try:
        family, _, _, _, target = socket.getaddrinfo(real_name(host), 9, type=socket.SOCK_DGRAM)[0]
    except OSError as error:
        raise ValueError(
            f"Cannot resolve host {host} ({error}). Check its spelling, DNS or /etc/hosts, "
            "or give it a HostName in ~/.ssh/config"
        ) from error
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(target)
        except OSError as error:
            raise ValueError(f"There is no route to host {host} ({target[0]}): {error}") from error
        return str(probe.getsockname()[0])


def interface_address(name: str) -> str:
    """The IPv4 address of an interface, e.g. "eth0"."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", name[:15].encode())
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError as error:
            known = ", ".join(interface for _, interface in socket.if_nameindex())
            raise ValueError(
                f"Network interface {name} does not exist or has no IPv4 address; interfaces here: {known}"
            ) from error


def listen(addresses: Sequence[str], port: int = 0) -> List[socket.socket]:
    """Listening sockets on one port of each address; the port of the first decides when it is 0."""
    sockets: List[socket.socket] = []
    for address in dict.fromkeys(addresses):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((address, sockets[0].getsockname()[1] if sockets else port))
        except OSError as error:
            sock.close()
            for other in sockets:
                other.close()
            raise StoreError(f"cannot listen on {address}:{port}: {error}") from error
        sock.listen(1024)
        sockets.append(sock)
    return sockets
