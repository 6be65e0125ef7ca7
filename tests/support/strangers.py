# SPDX-License-Identifier: Apache-2.0
"""Sockets of strangers, for tests of everything that listens."""

from __future__ import annotations

import socket
import struct


def closed_by_peer(sock: socket.socket) -> bool:
    """Waits until the other end hangs up, whatever it says before."""
    sock.settimeout(60)
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def reset(sock: socket.socket) -> None:
    """Closes with a reset instead of a goodbye."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
