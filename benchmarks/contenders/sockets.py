# SPDX-License-Identifier: Apache-2.0
"""Two ranks and one bare socket between them: what is left when all software of a collective is taken away.

`Sum` is an allreduce: each sends half of its bytes, adds what it gets to the other half and sends that.
`Exchange` only swaps as many bytes, as iperf3 does in both directions at once, but in blocks that stay in the
cache.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import Any, Callable, List

import numpy as np

from benchmarks.contenders.adapter import Adapter

BLOCK = 256 << 10


def blocks(data: memoryview) -> List[memoryview]:
    """In order; only the last may be shorter."""
    return [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]


class Exchange(Adapter):
    """Swaps the bytes, and does nothing with them."""

    def __init__(self) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if self.size != 2:
            raise ValueError(f"a bare socket connects 2 ranks, not {self.size}")
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + self.port
        self.socket = _accept(address) if self.rank == 0 else _connect(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)

    port = 1  # counted from what other contenders listen on

    def buffer(self, count: int) -> Any:
        return np.full(count, self.size, np.float32)

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        every = blocks(memoryview(data).cast("B"))
        self._move(every, every, len(every), lambda k: None)
        return data

    def barrier(self) -> None:
        self._move([memoryview(bytes(64))], [memoryview(bytearray(64))], 1, lambda k: None)

    def close(self) -> None:
        self.socket.close()

    def _move(
        self, out: List[memoryview], into: List[memoryview], ahead: int, arrived: Callable[[int], None]
    ) -> None:
        """Block k leaves once block k - ahead has arrived. Whichever direction is behind goes first."""
        left, there, sent, got = 0, 0, 0, 0  # blocks and bytes each way
        out, into = list(out), list(into)
        while left < len(out) or there < len(into):
            may_leave = left < len(out) and left < there + ahead
            for sends in (sent <= got, sent > got):
                try:
                    if sends and may_leave:
                        n = self.socket.send(out[left])
                        sent, out[left] = sent + n, out[left][n:]
                        left += not out[left]
                        break
                    if not sends and there < len(into):
                        n = self.socket.recv_into(into[there])
                        if n == 0:
                            raise ConnectionResetError("the other rank is gone")
                        got, into[there] = got + n, into[there][n:]
                        if not into[there]:
                            arrived(there)
                            there += 1
                        break
                except BlockingIOError:
                    continue
            else:
                reads = [self.socket] if there < len(into) else []
                select.select(reads, [self.socket] if may_leave else [], [])


class Sum(Exchange):
    """The sum of both, in place."""

    port = 2

    def __init__(self) -> None:
        super().__init__()
        self.scratch: Any = np.empty(BLOCK // 4, np.float32)

    def buffer(self, count: int) -> Any:
        return np.ones(count, np.float32)

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        if len(data) % 2:
            raise ValueError(f"{len(data)} numbers cannot be halved")
        halves = data[: len(data) // 2], data[len(data) // 2 :]
        mine = halves[self.rank]
        theirs = blocks(memoryview(halves[1 - self.rank]).cast("B"))
        own = blocks(memoryview(mine).cast("B"))
        space = memoryview(self.scratch).cast("B")

        def add(k: int) -> None:
            if k < len(own):
                part = mine[k * BLOCK // 4 : (k + 1) * BLOCK // 4]
                np.add(part, self.scratch[: len(part)], out=part)

        self._move(theirs + own, [space[: len(block)] for block in own] + theirs, len(own), add)
        return data


def _accept(address: Any) -> socket.socket:
    with socket.create_server(address) as listener:
        listener.settimeout(60)
        return listener.accept()[0]


def _connect(address: Any) -> socket.socket:
    for _ in range(600):
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:  # the first rank is not there yet
            time.sleep(0.1)
    raise ConnectionRefusedError(f"nobody listens at {address}")
