# SPDX-License-Identifier: Apache-2.0
"""Opens the links of a process set that was added while the job runs.

The store is gone by then, so the ranks exchange their new listeners' addresses through the engine itself, on
the global set. Sets that live on one host need no links.
"""

from __future__ import annotations

import ctypes
import struct
import time
from typing import List, Optional, Tuple

from horovod.common import _native, config, engine
from horovod.common import constants as c
from horovod.common.exceptions import HorovodInternalError
from horovod.rendezvous.links import LinkAcceptor
from horovod.rendezvous.network import listen
from horovod.rendezvous.planned_links import PlannedLinks
from horovod.rendezvous.world import World

_CARD = struct.Struct(">62sH")  # address as text, port


def attach(world: World, members: List[int], process_set: int) -> None:
    """Collective over all ranks: gives the engine the open links of a newly registered set.

    A rank that cannot open its own ends the job with the reason: the others wait for it, in different places,
    and hear nothing else.

    Raises:
        HorovodInternalError: on every rank, if one of them could not.
    """
    if len({world.host_of_rank[rank] for rank in members}) < 2:
        return
    links = PlannedLinks(world, members, process_set)
    acceptor: Optional[LinkAcceptor] = None
    try:
        expected = links.to_accept()
        if expected:
            (listener,) = listen([world.address])
            acceptor = LinkAcceptor(listener, world.secret, world.generation, expected)
        _open(links, acceptor, process_set)
    except BaseException as error:
        _tell(
            f"{world.describe(world.rank)} could not open its links of process set {members}: {error}", error
        )
        raise
    finally:
        if acceptor is not None:
            acceptor.close()
        links.close()
    engine.run_released(
        engine.request(c.BARRIER, f"horovod.process_set.{process_set}.linked", c.UINT8, (), 0)
    )


def _open(links: PlannedLinks, acceptor: Optional[LinkAcceptor], process_set: int) -> None:
    card = bytes(_CARD.size)
    if acceptor is not None:
        address, port = acceptor.address
        card = _CARD.pack(address.encode(), port)
    addresses = _exchange(card, process_set)
    deadline = time.monotonic() + float(config.get("gloo_timeout_seconds"))
    links.open(addresses, acceptor, deadline, _check)
    ready = links.for_engine()
    if ready:
        array = (_native.Link * len(ready))(*ready)
        try:
            engine.raise_for(_native.lib().hvd_attach_links(array, len(ready)), _native.last_error())
        finally:
            links.forget()


def _tell(text: str, error: BaseException) -> None:
    """Ends the job with this reason, before those who dial this rank find nobody there."""
    _check()  # if it has ended already, that is the reason
    _native.lib().hvd_abort(text.encode("utf-8", "replace"))
    if isinstance(error, Exception):
        raise HorovodInternalError(text) from error


def _check() -> None:
    """Raises if the job has ended, e.g. because a rank died that was to open a link."""
    engine.raise_for(_native.lib().hvd_check(), _native.last_error())


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
