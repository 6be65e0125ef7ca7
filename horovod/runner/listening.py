# SPDX-License-Identifier: Apache-2.0
"""Small things that both the launcher and the store need, without loading the store's asyncio.

The launcher opens the store's ports first and starts the workers; the store itself starts while they do.
"""

from __future__ import annotations

import socket
from typing import List, Sequence

from horovod.runner.store import StoreError


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks as people write them, e.g. "rank 3" or "ranks 0-2, 7"."""
    runs: List[List[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return ("rank " if len(ranks) == 1 else "ranks ") + (text or "none")


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
