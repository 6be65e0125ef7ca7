# SPDX-License-Identifier: Apache-2.0
"""Addresses and sockets of this machine: asked of the kernel, not guessed from interface names."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from typing import List, Optional, Sequence, Tuple

from horovod.common import config
from horovod.rendezvous.errors import CannotListen
from horovod.rendezvous.fork import guard

LISTEN_BACKLOG = 1024
_PORTS_TO_TRY = 20
_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
# Reserved for documentation: any route to the world will do.
_SOMEWHERE = ("203.0.113.1", "2001:db8::1")


def family_of(address: str) -> socket.AddressFamily:
    """The address family of a numeric address."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def is_loopback(address: str) -> bool:
    """Whether a numeric address means this machine wherever it is used."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def loopback() -> str:
    """The address under which processes of this machine reach each other; "::1" where there is no IPv4."""
    return "127.0.0.1" if can_bind("127.0.0.1") else "::1"


def is_local(host: str) -> bool:
    """Whether a host name means this machine."""
    here = ("localhost", "127.0.0.1", "::1", socket.gethostname(), os.environ.get("SLURMD_NODENAME"))
    if host in here:
        return True
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False  # perhaps a name only ssh's configuration knows
    return any(is_loopback(address) or can_bind(address) for address in addresses)


def can_bind(address: str) -> bool:
    """An address is ours if and only if the kernel lets us bind it: no list of interfaces needed."""
    try:
        with socket.socket(family_of(address), socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
            return True
    except OSError:
        return False


def own_addresses() -> List[str]:
    """The addresses of this machine's interfaces, one of each, loopback aside."""
    found = []
    for _, name in socket.if_nameindex():
        try:
            found.append(interface_address(name))
        except ValueError:
            pass  # down
    return [address for address in dict.fromkeys(found) if not is_loopback(address)]


def route_to(target: str) -> Optional[str]:
    """The address this machine would use towards another; None without a route, or for this machine."""
    try:
        family, _, _, _, where = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)  # connecting a datagram socket sends nothing
            found = str(probe.getsockname()[0])
    except OSError:
        return None
    return None if is_loopback(found) else found


def primary_address(towards: Optional[str] = None) -> str:
    """This machine's address on the route towards a host (or the world); loopback without a network."""
    for target in (towards, *_SOMEWHERE):
        found = route_to(target) if target else None
        if found:
            return found
    return next(iter(own_addresses()), loopback())


def interface_address(name: str) -> str:
    """The IPv4 address of an interface, e.g. "eth0", or else its IPv6 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", name[:15].encode())
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError as error:
            address = _ipv6_address(name)
            if address is not None:
                return address
            known = ", ".join(interface for _, interface in socket.if_nameindex())
            raise ValueError(
                f"Network interface {name} does not exist or has no address; interfaces here: {known}"
            ) from error


def _ipv6_address(interface: str) -> Optional[str]:
    """The first address of an interface that other hosts can use without knowing the interface."""
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as table:
            for line in table:  # e.g. "20010db8000000000000000000000001 02 40 00 80 eth0"; 20: link-local
                digits, _, _, scope, _, name = line.split()
                if name == interface and scope != "20":
                    return str(ipaddress.IPv6Address(int(digits, 16)))
    except OSError:
        pass  # a kernel without IPv6
    return None


def machine_key() -> str:
    """Equal for processes that reach each other over the loopback interface and its abstract Unix sockets.

    The kernel's boot id tells machines apart even if they carry one name; the network namespace, containers.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}|{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()


def listen(addresses: Sequence[str], port: int = 0) -> List[socket.socket]:
    """Listening sockets on one port of each address; the kernel chooses one when it is 0.

    Raises:
        CannotListen: an address is not this machine's, or the port is taken there.
    """
    places = list(dict.fromkeys(addresses))
    for _ in range(0 if port else _PORTS_TO_TRY):
        try:
            return _listen_on(places, 0)
        except CannotListen as error:  # what is free on the first address may be in use on another
            if error.errno != errno.EADDRINUSE:
                raise
    return _listen_on(places, port)


def _listen_on(addresses: Sequence[str], port: int) -> List[socket.socket]:
    sockets: List[socket.socket] = []
    for address in addresses:
        sock = guard(socket.socket(family_of(address), socket.SOCK_STREAM))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((address, port))
            sock.listen(LISTEN_BACKLOG)
        except OSError as error:
            for one in (sock, *sockets):
                one.close()
            raise CannotListen(f"cannot listen on {address}:{port}: {error}", error.errno) from error
        sockets.append(sock)
        port = address_of(sock)[1]
    return sockets


def address_of(sock: socket.socket) -> Tuple[str, int]:
    """Address and port of this end of a socket; those of a Unix socket are its name and 0."""
    name = sock.getsockname()
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) else (str(name), 0)


def tune(sock: socket.socket) -> None:
    """Small messages leave at once; a peer that vanished without a word is noticed after the time that
    HOROVOD_NETWORK_TIMEOUT_SECONDS allows for silence, and not before: a cable may be plugged in again."""
    if sock.family == socket.AF_UNIX:
        return
    seconds = int(config.usable("network_timeout_seconds"))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (  # e.g. for 30 s: the first probe after 10 s, then four more, 5 s apart
        ("TCP_KEEPIDLE", max(seconds // 3, 1)),
        ("TCP_KEEPINTVL", max(seconds // 6, 1)),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", seconds * 1000),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def read_exactly(sock: socket.socket, count: int) -> bytes:
    """So many bytes of a blocking socket; a peer that hangs up before is a ConnectionResetError."""
    data = bytearray()
    while len(data) < count:  # never more memory than has arrived: a length may not be signed yet
        part = sock.recv(min(count - len(data), 1 << 20))
        if not part:
            raise ConnectionResetError("connection closed")
        data += part
    return bytes(data)
