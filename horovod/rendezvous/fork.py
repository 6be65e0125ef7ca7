# SPDX-License-Identifier: Apache-2.0
"""A forked child holds none of our sockets.

Peers see a process' death by its sockets closing. A child that another thread forks during hvd.init() (a data
loader, say) would keep copies of them open. Programs started with exec are no concern: Python opens every
socket close-on-exec.
"""

from __future__ import annotations

import os
import socket
import weakref

_ours: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def guard(sock: socket.socket) -> socket.socket:
    """Closes this socket in every child forked from now on, unless it is closed or detached by then."""
    _ours.add(sock)
    return sock


def _in_child() -> None:
    for sock in list(_ours):
        try:
            sock.close()  # of this process' copy: nothing is sent, and the parent's stays open
        except OSError:
            pass


os.register_at_fork(after_in_child=_in_child)
