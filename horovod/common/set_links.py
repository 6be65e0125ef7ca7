# SPDX-License-Identifier: Apache-2.0
"""Opens the links of a process set that was added while the job runs.

The store is gone by then, so the ranks exchange their new listeners' addresses through the engine itself, on
the global set. Sets that live on one host need no links.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import time
from typing import Any, Dict, List, Optional, Tuple

from horovod.common import _native, config, engine
from horovod.common import constants as c
from horovod.common.exceptions import HorovodInternalError
from horovod.rendezvous.bootstrap import _tags_to_accept, open_links
from horovod.rendezvous.links import Acceptor, addresses_of, listen
from horovod.rendezvous.world import World

_CARD = struct.Struct(">62sH")  # address as text, port


def attach(world: World, members: List[int], process_set: int) -> None:
    """Collective over all ranks: gives the engine the open links of a newly registered set."""
    hosts = {world.host_of_rank[rank] for rank in members}
    if len(hosts) < 2:
        return
    planned = world.plan(members, process_set)
    acceptor: Optional[Acceptor] = None
    opened: List[socket.socket] = []
    try:
        card = bytes(_CARD.size)
        if any(not link.dial for link in planned):
            listener = listen(world.address)
            card = _CARD.pack(*_encoded(addresses_of(listener)))
            acceptor = Acceptor(listener, world.secret, _tags_to_accept(world, planned))
        addresses = _exchange(card, process_set)
        deadline = time.monotonic() + float(config.get("gloo_timeout_seconds"))
        ready = open_links(world, planned, addresses, acceptor or _Nothing(), deadline, _check, opened)
        for sock in opened:
            sock.detach()
        opened.clear()
        array = (_native.Link * max(len(ready), 1))(*ready)
        if ready and _native.lib().hvd_attach_links(array, len(ready)) != c.OK:
            raise HorovodInternalError(_native.last_error())
    finally:
        if acceptor is not None:
            acceptor.close()
        for sock in opened:
            sock.close()
    engine.run_released(
        engine.request(c.BARRIER, f"horovod.process_set.{process_set}.linked", c.UINT8, (), 0)
    )


def _check() -> None:
    """Raises if the job has ended, e.g. because a rank died that was to open a link."""
    engine.raise_for(_native.lib().hvd_check(), _native.last_error())


class _Nothing:
    """Stands in for an acceptor where there is nothing to accept."""

    keys: Dict[Any, bytes] = {}

    def wait(self, timeout: float) -> bool:
        return True

    def take(self) -> Any:
        return {}


def _encoded(address: Tuple[str, int]) -> Tuple[bytes, int]:
    return address[0].encode(), address[1]


def _exchange(card: bytes, process_set: int) -> List[Tuple[str, int]]:
    buffer = ctypes.create_string_buffer(card, len(card))
    request = engine.request(
        c.ALLGATHER,
        f"horovod.process_set.{process_set}.addresses",
        c.UINT8,
        (1, len(card)),
        ctypes.addressof(buffer),
    )
    handle = engine.run([request], keep=(buffer,))
    try:
        table = bytes(engine.take(handle, 0, 1))
    finally:
        engine.release(handle)
    cards = [_CARD.unpack_from(table, at) for at in range(0, len(table), _CARD.size)]
    return [(address.rstrip(b"\0").decode(), port) for address, port in cards]
