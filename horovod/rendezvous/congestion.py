# SPDX-License-Identifier: Apache-2.0
"""How the TCP connections between ranks find their speed: HOROVOD_TCP_CONGESTION.

Some systems pace all their connections with bbr, which is made for long and lossy ways through the
internet. It sends by timers, and finds its speed anew after each pause: between two hosts of one cluster
64 MiB took 22 ms with it and 52 after a pause of 0.25 s, without it 16 and 18. So between ranks that are
near each other it gives way to reno, the most careful of the others, which every Linux has and everybody
may use.
"""

from __future__ import annotations

import socket
import struct
from typing import Optional

from horovod.common import config

_NEAR_US = 1000  # there and back, within a data centre; between two of them it is longer
_MIN_RTT = struct.Struct("=148xI")  # of Linux' struct tcp_info, since 4.6


def choose_congestion_control(sock: socket.socket) -> None:
    """Has a connection find its speed as HOROVOD_TCP_CONGESTION says.

    Raises:
        RuntimeError: the kernel does not know that way, or keeps it for root.
    """
    wanted = config.get("tcp_congestion")
    if wanted == "system" or sock.family == socket.AF_UNIX or not hasattr(socket, "TCP_CONGESTION"):
        return
    if wanted == "auto":
        try:
            better = better_than(congestion_control(sock), round_trip_us(sock))
            if better is not None:
                _set(sock, better)
        except OSError:  # not every sandbox knows these options: then it stays as it is
            pass
        return
    try:
        _set(sock, wanted)
    except OSError as error:
        raise RuntimeError(
            f"HOROVOD_TCP_CONGESTION={wanted}: {error.strerror}; this kernel has {_of_tcp('available')}, of "
            f"which {_of_tcp('allowed')} for everybody (modprobe tcp_{wanted} may bring it)"
        ) from error


def better_than(current: str, round_trip_us: Optional[int]) -> Optional[str]:
    """What a connection had better use, or None: what it uses is good, or nothing is known of its way."""
    paced = current.startswith("bbr")  # "bbr2", "bbr3"
    return "reno" if paced and round_trip_us is not None and round_trip_us < _NEAR_US else None


def congestion_control(sock: socket.socket) -> str:
    """What a connection uses, e.g. "cubic"."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


def round_trip_us(sock: socket.socket) -> Optional[int]:
    """The shortest time that anything took to the other end and back, or None if the system does not say."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        (shortest,) = _MIN_RTT.unpack_from(info)
    except (AttributeError, OSError, struct.error):
        return None
    return int(shortest) if 0 < shortest < 1 << 31 else None


def _set(sock: socket.socket, name: str) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


def _of_tcp(which: str) -> str:
    try:
        with open(f"/proc/sys/net/ipv4/tcp_{which}_congestion_control", encoding="ascii") as file:
            return ", ".join(file.read().split())
    except OSError:  # a network namespace need not show all
        return "some"
