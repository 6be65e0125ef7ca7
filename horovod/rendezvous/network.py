# SPDX-License-Identifier: Apache-2.0
"""Which address to use: asked of the routing table, not guessed from interface names."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from typing import List, Optional, Sequence

from horovod.rendezvous.store import StoreError

LOOPBACK = "127.0.0.1"
_SIOCGIFADDR = 0x8915


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
