# SPDX-License-Identifier: Apache-2.0
"""All the links that a rank needs for a process set, as the engine plans them: opened, and handed over."""

from __future__ import annotations

import time
from typing import Callable, List, Optional, Sequence, Tuple

from horovod.common import constants
from horovod.common._native import Link
from horovod.common.exceptions import HorovodInternalError
from horovod.rendezvous.congestion import choose_congestion_control
from horovod.rendezvous.links import CHECK_SECONDS, LinkAcceptor, OpenLink, Tag, open_link
from horovod.rendezvous.world import World

_GRACE_SECONDS = 1.0


class PlannedLinks:
    """The links of one process set at one rank. Close it unless the engine took them."""

    def __init__(self, world: World, members: Sequence[int], process_set: int) -> None:
        self._world = world
        self._planned = world.plan(members, process_set)
        self._open: List[Tuple[Link, OpenLink]] = []

    def to_accept(self) -> List[Tag]:
        """Those that other ranks dial."""
        return [self._tag(link) for link in self._planned if not link.dial]

    def open(
        self,
        addresses: Sequence[Tuple[str, int]],
        acceptor: Optional[LinkAcceptor],
        deadline: float,
        check: Callable[[], None],
    ) -> None:
        """Dials and accepts them all.

        Args:
            addresses: every rank's listener.
            acceptor: already expecting the links to accept; None if there are none.
            check: called now and then; raises when the job has failed.
        """
        for link in self._planned:
            if link.dial:
                self._open.append((link, self._dialled(link, addresses[link.peer], deadline, check)))
        if acceptor is not None:
            self._accept(acceptor, deadline, check)
        for _, opened in self._open:
            choose_congestion_control(opened.sock)

    def _accept(self, acceptor: LinkAcceptor, deadline: float, check: Callable[[], None]) -> None:
        while not acceptor.wait(CHECK_SECONDS):
            check()
            if time.monotonic() > deadline:
                late = sorted({tag.from_rank for tag in acceptor.missing()})
                who = ", ".join(self._world.describe(rank) for rank in late)
                raise HorovodInternalError(f"no connection from {who} within the time limit")
        accepted = acceptor.take()
        self._open += [(link, accepted[self._tag(link)]) for link in self._planned if not link.dial]

    def for_engine(self) -> List[Link]:
        """As hvd_start and hvd_attach_links want them: with descriptor and key."""
        made = []
        for link, opened in self._open:
            ready = Link.from_buffer_copy(link)
            ready.fd = opened.sock.fileno()
            ready.key[:] = opened.key
            made.append(ready)
        return made

    def forget(self) -> None:
        """The engine owns the descriptors now."""
        for _, opened in self._open:
            opened.sock.detach()
        self._open.clear()

    def close(self) -> None:
        """Closes what is open; for a start that failed before the engine took it."""
        for _, opened in self._open:
            opened.sock.close()
        self._open.clear()

    def _dialled(
        self, link: Link, address: Tuple[str, int], deadline: float, check: Callable[[], None]
    ) -> OpenLink:
        try:
            return open_link(address, self._world.secret, self._tag(link), deadline, check)
        except OSError as error:
            _hear_the_peers_reason(check)
            raise HorovodInternalError(
                f"could not connect to {self._world.describe(link.peer)} at {address[0]}:{address[1]}: "
                f"{error}. Does a firewall between the hosts block it?"
            ) from error

    def _tag(self, link: Link) -> Tag:
        """Both ends name a link by the side that dials it; a DATA_OUT here is a DATA_IN there."""
        kind = link.kind
        if not link.dial and kind in (constants.LINK_DATA_OUT, constants.LINK_DATA_IN):
            kind = constants.LINK_DATA_IN if kind == constants.LINK_DATA_OUT else constants.LINK_DATA_OUT
        mine, theirs = self._world.rank, link.peer
        dialler, other = (mine, theirs) if link.dial else (theirs, mine)
        return Tag(kind, link.process_set, link.hop, dialler, other, self._world.generation)


def _hear_the_peers_reason(check: Callable[[], None]) -> None:
    """A peer that cannot be reached has probably failed, and says why at the same moment; raises that."""
    deadline = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < deadline:
        check()
        time.sleep(CHECK_SECONDS / 10)
