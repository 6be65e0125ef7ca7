# SPDX-License-Identifier: Apache-2.0
"""Ports for programs that must be told one before they listen there."""

from __future__ import annotations

import random
import socket
from typing import List


def free_ports(count: int) -> List[int]:
    """Ports on which nobody listens, and nobody will by chance.

    The kernel takes what it gives away by itself, to outgoing connections and to who asks for port 0, from a
    range of its own, e.g. 32768 to 60999. A port of that range may be taken again before it is used.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        low, high = map(int, file.read().split())
    others = [port for port in range(20000, 65536) if not low <= port <= high]
    random.SystemRandom().shuffle(others)
    held: List[socket.socket] = []
    try:
        while len(held) < count:
            one = socket.socket()
            try:
                one.bind(("", others.pop()))
                held.append(one)
            except OSError:
                one.close()  # somebody is there
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def free_port() -> int:
    """One of them."""
    return free_ports(1)[0]
