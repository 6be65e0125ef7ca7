# SPDX-License-Identifier: Apache-2.0
"""From "I am rank 3 of 8, the store is over there" to a started engine.

1. Every rank listens, and puts a card (address, host, version, ...) into the job's store.
2. Rank 0 collects the cards, checks that they fit together, and publishes them as one table.
3. The first rank of each host hands the host's shared memory to the others (shared_memory.py).
4. Every rank opens the links the engine planned (links.py); when all have, the engines start.

The store fails all waiting ranks at once when one of them dies, so nobody waits in vain. A world of one does
none of this: no sockets, no store.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import time
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from horovod.common import _native, config, constants, nvidia
from horovod.common._native import Link
from horovod.common.exceptions import HorovodInternalError
from horovod.rendezvous import links, shared_memory
from horovod.rendezvous.auth import AuthenticationError
from horovod.rendezvous.links import Acceptor, Tag
from horovod.rendezvous.world import World, alone
from horovod.version import __version__

_generation = 0  # how often this process has joined a world; keeps the store's keys of two starts apart

SETS_DIFFER = "mismatching process sets"
_SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface


def start(identity: Any, card: Dict[str, Any]) -> World:
    """Joins the world the identity describes and starts the engine.

    Args:
        identity: horovod.rendezvous.identity.Identity.
        card: further facts that must be equal on all ranks, e.g. {"process_sets": [[0, 1]]}.

    Raises:
        HorovodInternalError: a rank is missing, died, or does not fit; the text names it.
    """
    global _generation
    _generation += 1
    _configure_engine()
    if identity.size == 1:
        world = alone(identity.host)
        _start_engine(world, None, [])
        return world
    timeout = float(config.get("gloo_timeout_seconds"))
    try:
        store = identity.open_store(timeout)
    except RuntimeError as error:
        who = f"rank {identity.rank} on {identity.host}"
        raise HorovodInternalError(f"{who} could not join: {error}") from error
    scope = f"init/{_generation}"
    try:
        world = _join(identity, store, card, scope, timeout)
        _leave(store)
        return world
    except (RuntimeError, OSError) as error:
        text = str(error)
        if not isinstance(error, _PeerFailed):
            text = f"rank {identity.rank} on {identity.host} could not start: {error}"
            _tell(store, scope, identity.rank, text)
        _leave(store)
        raise HorovodInternalError(text) from error
    except BaseException as error:
        text = f"rank {identity.rank} on {identity.host} gave up during init: {error!r}"
        _tell(store, scope, identity.rank, text)
        raise
    finally:
        store.close()


class _PeerFailed(HorovodInternalError):
    """Another rank could not start, and said why."""


def _tell(store: Any, scope: str, rank: int, text: str) -> None:
    """Lets the others fail with this reason: whatever they wait for becomes the reason.

    Not `store.fail`: that is for ranks that die, and for ever; a script may catch the error and go on.
    """
    try:
        for key in (f"card/{rank}", "table", f"linked/{rank}", "go"):
            store.set(f"{scope}/{key}", b"!" + text.encode())
    except (RuntimeError, OSError):
        pass


def _leave(store: Any) -> None:
    """Says goodbye, so that hanging up is not taken for dying."""
    try:
        store.done()
    except (RuntimeError, OSError):
        pass


def _get(store: Any, key: str, timeout: float) -> bytes:
    value: bytes = store.get(key, timeout)
    if value[:1] == b"!":
        raise _PeerFailed(value[1:].decode())
    return value


def _join(identity: Any, store: Any, card: Dict[str, Any], scope: str, timeout: float) -> World:
    deadline = time.monotonic() + timeout
    secret = store.secret
    listener = links.listen(_my_address(store.address, store.port))
    acceptor = Acceptor(listener, secret, set())
    opened: List[socket.socket] = []
    memory: Optional[shared_memory.SharedMemory] = None
    try:
        table = _exchange_cards(identity, store, dict(card, **_card(identity, listener)), scope, timeout)
        world = World(identity.rank, table, secret)
        planned = world.plan(range(world.size), 0)
        acceptor.expect(_tags_to_accept(world, planned))

        def check() -> None:
            _check_store(store, scope)

        if len(world.local_ranks) > 1:
            host = world.host_of_rank[world.rank]
            memory = shared_memory.share(
                secret, f"{store.port} {scope} {host} {table[0]['nonce']}", world.rank, world.local_ranks,
                deadline, check,
            )  # fmt: skip
        addresses = [(card["address"], card["port"]) for card in table]
        ready = open_links(world, planned, addresses, acceptor, deadline, check, opened)
        _all_linked(identity, store, scope, deadline)
        taken, memory = memory, None  # the engine owns the descriptors from here, whatever it answers
        for sock in opened:
            sock.detach()
        opened.clear()
        _start_engine(world, taken, ready)
        return world
    finally:
        acceptor.close()
        for sock in opened:
            sock.close()
        if memory is not None:
            memory.close()


def _card(identity: Any, listener: socket.socket) -> Dict[str, Any]:
    address, port = links.addresses_of(listener)
    return {
        "rank": identity.rank,
        "size": identity.size,
        "address": address,
        "port": port,
        "host": identity.host,
        "host_key": shared_memory.host_key(identity.host),
        "version": __version__,
        "pid": os.getpid(),
        "nonce": os.urandom(8).hex(),
        "link_security": str(config.get("link_security")).lower(),
    }


def _exchange_cards(
    identity: Any, store: Any, mine: Dict[str, Any], scope: str, timeout: float
) -> List[Dict[str, Any]]:
    store.set(f"{scope}/card/{identity.rank}", json.dumps(mine).encode())
    if identity.rank == 0:
        cards = [json.loads(_get(store, f"{scope}/card/{r}", timeout)) for r in range(identity.size)]
        problem = _misfit(cards)
        if problem:
            raise HorovodInternalError(problem)
        store.set(f"{scope}/table", json.dumps(cards).encode())
        return cards
    table: List[Dict[str, Any]] = json.loads(_get(store, f"{scope}/table", timeout))
    return table


def _misfit(cards: List[Dict[str, Any]]) -> str:
    """What does not fit between the ranks, or ""."""
    first = cards[0]
    for card in cards:
        who = f"rank {card['rank']} on {card['host']}"
        if card["version"] != first["version"]:
            return (
                f"{who} runs Horovod {card['version']} but rank 0 on {first['host']} runs "
                f"{first['version']}: install the same version everywhere"
            )
        if card["size"] != first["size"]:
            return f"{who} believes in {card['size']} ranks, rank 0 on {first['host']} in {first['size']}"
        if card["link_security"] != first["link_security"]:
            return (
                f"{who} has HOROVOD_LINK_SECURITY={card['link_security']} but rank 0 on {first['host']} has "
                f"{first['link_security']}: set it to the same value everywhere"
            )
        ours, theirs = first.get("process_sets"), card.get("process_sets")
        if ours != theirs:
            return (
                f"{SETS_DIFFER}: {who} passed {theirs} to hvd.init(), rank 0 on {first['host']} "
                f"passed {ours}; all ranks must pass the same list in the same order"
            )
    return ""


def _all_linked(identity: Any, store: Any, scope: str, deadline: float) -> None:
    """A barrier through the store, so that a rank which dies before its links are up fails the others."""
    store.set(f"{scope}/linked/{identity.rank}", b"1")
    if identity.rank == 0:
        for r in range(identity.size):
            _get(store, f"{scope}/linked/{r}", max(deadline - time.monotonic(), 1.0))
        store.set(f"{scope}/go", b"1")
    else:
        _get(store, f"{scope}/go", max(deadline - time.monotonic(), 1.0))


def _check_store(store: Any, scope: str) -> None:
    """Raises if the job has failed; "go" cannot be there yet, so a timeout means all is well."""
    from horovod.rendezvous.store import StoreTimeout

    try:
        _get(store, f"{scope}/go", 0.0)
    except StoreTimeout:
        pass


def _my_address(store_address: str, store_port: int) -> str:
    """Where other ranks can reach this one: the chosen interface, or the one that leads to the store."""
    interface = config.get("gloo_iface")
    if interface:
        return _interface_address(interface)
    family = socket.AF_INET6 if ":" in store_address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:  # connecting a datagram socket sends nothing
        probe.connect((store_address, store_port or 9))
        return str(probe.getsockname()[0])


def _interface_address(interface: str) -> str:
    import fcntl
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface[:15].encode())
        try:
            packed = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            names = ", ".join(name for _, name in socket.if_nameindex())
            text = f"HOROVOD_GLOO_IFACE={interface}: {error.strerror}; this host has {names}"
            raise RuntimeError(text) from error
    return socket.inet_ntoa(packed[20:24])


# ------------------------------------------------------------------------------------------- links --


def _tag_of(world: World, link: Link) -> Tag:
    """Both ends name a link by the side that dials it; a DATA_OUT here is a DATA_IN there."""
    kind = link.kind
    if not link.dial and kind in (constants.LINK_DATA_OUT, constants.LINK_DATA_IN):
        kind = constants.LINK_DATA_IN if kind == constants.LINK_DATA_OUT else constants.LINK_DATA_OUT
    ends = (world.rank, link.peer) if link.dial else (link.peer, world.rank)
    return Tag(kind, link.process_set, link.hop, *ends)


def _tags_to_accept(world: World, planned: Sequence[Link]) -> Set[Tag]:
    return {_tag_of(world, link) for link in planned if not link.dial}


def open_links(
    world: World,
    planned: Sequence[Link],
    addresses: Sequence[Tuple[str, int]],
    acceptor: Any,
    deadline: float,
    check: Any,
    opened: List[socket.socket],
) -> List[Link]:
    """Dials and accepts all planned links; returns them with open descriptors.

    Args:
        addresses: every rank's listener.
        acceptor: already expecting the links to accept.
        check: called now and then; raises when the job has failed.
        opened: receives the sockets, so that the caller can close them if something fails later.
    """
    sockets: Dict[Tag, socket.socket] = {}
    keys: Dict[Tag, bytes] = {}
    for link in planned:
        if link.dial:
            tag = _tag_of(world, link)
            address, port = addresses[link.peer]
            try:
                sockets[tag] = links.dial(address, port, world.secret, tag, deadline, keys)
            except (OSError, AuthenticationError) as error:
                check()  # if the peer died, the store's reason is better than ours
                raise HorovodInternalError(
                    f"could not connect to {world.describe(link.peer)} at {address}:{port}: {error}. "
                    "Does a firewall between the hosts block it?"
                ) from error
            opened.append(sockets[tag])
    while not acceptor.wait(0.2):
        check()
        if time.monotonic() > deadline:
            late = sorted({tag.from_rank for tag in acceptor.missing()})
            who = ", ".join(world.describe(rank) for rank in late)
            raise HorovodInternalError(f"no connection from {who} within the time limit")
    accepted = acceptor.take()
    opened.extend(accepted.values())
    sockets.update(accepted)
    keys.update(acceptor.keys)
    ready = []
    for link in planned:
        tag = _tag_of(world, link)
        sock = sockets[tag]
        sock.settimeout(None)
        key = (ctypes.c_uint8 * 32)(*keys[tag])
        ready.append(Link(link.kind, link.peer, link.process_set, link.hop, link.dial, sock.fileno(), key))
    return ready


def _configure_engine() -> None:
    """Hands the settings over, before anything is made by them."""
    settings = config.engine_settings()
    settings["nccl_library"] = settings["nccl_library"] or nvidia.nccl_wheel()
    for name, value in settings.items():
        if _native.lib().hvd_configure(name.encode(), value.encode()) != constants.OK:
            raise HorovodInternalError(_native.last_error())


def _start_engine(world: World, memory: Optional[shared_memory.SharedMemory], ready: Sequence[Link]) -> None:
    lib = _native.lib()
    opened = (Link * max(len(ready), 1))(*ready)
    if lib.hvd_start(world.for_engine(memory), opened, len(ready)) != constants.OK:
        raise HorovodInternalError(f"{world.describe(world.rank)}: {_native.last_error()}")
