# SPDX-License-Identifier: Apache-2.0
"""From "the store is over there" to a started engine.

1. Every rank asks the job's store for its place: rank, size, generation (generations.py).
2. It listens, and puts a card (address, host, version, ...) on its generation's board.
3. Rank 0 collects the cards, checks that they fit together, and publishes them as one table.
4. The first rank of each host hands the host's shared memory to the others (shared_memory.py).
5. Every rank opens the links the engine planned (planned_links.py); when all have, the engines start.

The store fails all waiting ranks at once when one of them fails or dies, so nobody waits in vain. A world of
one does none of this: no sockets, no store.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

from horovod.common import _native, config, constants, flight_file, nvidia
from horovod.common._native import Link
from horovod.common.exceptions import HorovodInternalError, WorkerRemoved
from horovod.rendezvous import shared_memory
from horovod.rendezvous import store_wire as wire
from horovod.rendezvous.errors import Dismissed, StoreError, StoreTimeout, Superseded
from horovod.rendezvous.identity import Identity
from horovod.rendezvous.links import LinkAcceptor
from horovod.rendezvous.network import interface_address, listen, loopback, machine_key, route_to
from horovod.rendezvous.planned_links import PlannedLinks
from horovod.rendezvous.store import StoreClient
from horovod.rendezvous.world import World, alone
from horovod.version import __version__

Card = Dict[str, Any]

SETS_DIFFER = "mismatching process sets"


def start(identity: Identity, facts: Callable[[Identity], Card]) -> World:
    """Joins the world the identity describes and starts the engine.

    Args:
        facts: further facts that must be equal on all ranks, e.g. {"process_sets": [[0, 1]]}; asked once rank
            and size are known.

    Raises:
        HorovodInternalError: a rank is missing, died, or does not fit; the text names it.
        ValueError: an argument or a setting of this rank is wrong; the others hear of it too.
    """
    if identity.meet is None:
        facts(identity)
        configure_engine(b"")
        return _started(alone(identity.host), None, [])
    try:
        store = identity.open_store(config.usable("gloo_timeout_seconds"))
    except (RuntimeError, OSError) as error:
        raise HorovodInternalError(f"{identity} could not join: {error}") from error
    try:
        return _start_in(store, identity, facts)
    finally:
        store.close()


def configure_engine(secret: bytes) -> None:
    """Hands the settings to the engine. Raises ValueError for one that is wrong."""
    settings = config.engine_settings()
    settings["nccl_library"] = settings["nccl_library"] or nvidia.nccl_wheel()
    settings["nvtx_library"] = nvidia.nvtx(settings["nvtx_library"], config.get("disable_nvtx_ranges"))
    settings["flight_recorder"] = flight_file.path(settings["flight_recorder"], secret)
    for name, value in settings.items():
        if _native.lib().hvd_configure(name.encode(), value.encode()) != constants.OK:
            raise ValueError(f"{config.BY_NAME[name].env}: {_native.last_error()}")


def _start_in(store: StoreClient, identity: Identity, facts: Callable[[Identity], Card]) -> World:
    """Forms a world; in an elastic job that may take several attempts: the driver gives out places anew."""
    # A worker of an elastic job has a place when the others pause, perhaps at the end of an epoch: its driver
    # knows how long that may take.
    patience = wire.MAX_SECONDS if identity.worker else config.usable("gloo_timeout_seconds")
    while True:
        me = identity
        try:
            me = identity.seated(store.join(identity.claim(), patience))
            configure_engine(store.secret)
            world = _form(me, store, facts(me))
            store.done()
            return world
        except Superseded:
            continue
        except Dismissed as error:
            raise WorkerRemoved(str(error)) from error
        except (RuntimeError, OSError) as error:
            text = str(error)  # of the store: somebody else's failure, which all have heard of
            if isinstance(error, StoreTimeout) or not isinstance(error, StoreError):
                text = f"{me} could not start: {error}"
                _give_up(store, me, text)
            store.done()
            raise HorovodInternalError(text) from error
        except BaseException as error:
            _give_up(store, me, f"{me} gave up during init: {error!r}")
            raise


def _give_up(store: StoreClient, me: Identity, text: str) -> None:
    """Lets the others of this generation fail with this reason, if it has a place in one."""
    if me.generation:
        try:
            store.fail(text)
            store.done()
        except StoreError:
            pass


def _form(me: Identity, store: StoreClient, facts: Card) -> World:
    """Opens everything that this rank shares with the others, and starts the engine on it."""
    if me.size == 1:
        return _started(alone(me.host, me.generation, me.place()), None, [])
    deadline = time.monotonic() + float(config.get("gloo_timeout_seconds"))
    (listener,) = listen([me.address or _my_address(store)])
    acceptor = LinkAcceptor(listener, store.secret, me.generation, None)
    memory: Optional[shared_memory.SharedMemory] = None
    links: Optional[PlannedLinks] = None
    try:
        address, port = acceptor.address
        table = _exchange_cards(me, store, dict(facts, **_card(me), address=address, port=port), deadline)
        world = World(me.rank, table, store.secret, me.generation, me.place())
        links = PlannedLinks(world, range(world.size), 0)
        acceptor.expect(links.to_accept())

        def check() -> None:
            _check_store(store)

        if len(world.local_ranks) > 1:
            name = f"{world.host_of_rank[me.rank]} {table[0]['nonce']}"
            host = shared_memory.Host(store.secret, me.generation, name, me.rank, world.local_ranks)
            memory = shared_memory.share(host, deadline, check)
        links.open([(card["address"], card["port"]) for card in table], acceptor, deadline, check)
        _all_linked(me, store, deadline)
        taken, memory = memory, None  # the engine owns the descriptors, whatever it answers
        try:
            return _started(world, taken, links.for_engine())
        finally:
            links.forget()
    finally:
        acceptor.close()
        if links is not None:
            links.close()
        if memory is not None:
            memory.close()


def _started(world: World, memory: Optional[shared_memory.SharedMemory], links: Sequence[Link]) -> World:
    ready = (Link * max(len(links), 1))(*links)
    if _native.lib().hvd_start(world.for_engine(memory), ready, len(links)) != constants.OK:
        raise HorovodInternalError(f"{world.describe(world.rank)}: {_native.last_error()}")
    return world


def _card(me: Identity) -> Card:
    return {
        "rank": me.rank,
        "size": me.size,
        "host": me.host,
        "host_key": f"{me.host_key or me.host}|{machine_key()}",
        "version": __version__,
        "pid": os.getpid(),
        "nonce": os.urandom(8).hex(),
        "link_security": str(config.get("link_security")).lower(),
    }


def _my_address(store: StoreClient) -> str:
    """Where other ranks can reach this one: the chosen interface, or the one that leads to the store."""
    interface = config.get("gloo_iface")
    if not interface:
        return route_to(store.address) or loopback()
    try:
        return interface_address(interface)
    except ValueError as error:
        raise RuntimeError(f"HOROVOD_GLOO_IFACE={interface}: {error}") from error


# ------------------------------------------------------------------------------------- on the board --


def _exchange_cards(me: Identity, store: StoreClient, mine: Card, deadline: float) -> List[Card]:
    store.set(f"card/{me.rank}", json.dumps(mine).encode())
    if me.rank != 0:
        table: List[Card] = json.loads(store.get("table", _left(deadline)))
        return table
    cards = [json.loads(store.get(f"card/{rank}", _left(deadline))) for rank in range(me.size)]
    problem = _misfit(cards)
    if problem:
        raise HorovodInternalError(problem)
    store.set("table", json.dumps(cards).encode())
    return cards


def _misfit(cards: List[Card]) -> str:
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


def _all_linked(me: Identity, store: StoreClient, deadline: float) -> None:
    """A barrier through the store, so that a rank which dies before its links are up fails the others."""
    store.set(f"linked/{me.rank}", b"1")
    if me.rank == 0:
        for rank in range(me.size):
            store.get(f"linked/{rank}", _left(deadline))
        store.set("go", b"1")
    else:
        store.get("go", _left(deadline))


def _check_store(store: StoreClient) -> None:
    """Raises if the generation has failed; "go" cannot be there yet, so a timeout means all is well."""
    try:
        store.get("go", 0.0)
    except StoreTimeout:
        pass


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 1.0)
