# SPDX-License-Identifier: Apache-2.0
"""All links of a rank, as the engine gets them."""

from __future__ import annotations

import os
import socket
import threading
import time

import pytest

from horovod.common import constants
from horovod.common.exceptions import HorovodInternalError
from horovod.rendezvous.congestion import congestion_control
from horovod.rendezvous.links import LinkAcceptor
from horovod.rendezvous.network import listen
from horovod.rendezvous.planned_links import PlannedLinks
from horovod.rendezvous.world import World

SECRET = b"s" * 32
HOSTS = "aabbc"


def worlds(generation=7):
    table = [{"address": "127.0.0.1", "host": host, "host_key": host} for host in HOSTS]
    return [World(rank, table, SECRET, generation) for rank in range(len(HOSTS))]


def nothing():
    pass


@pytest.fixture
def linked(request, monkeypatch):
    """Every rank of a world with its links open, in one process; with the congestion control given."""
    monkeypatch.setenv("HOROVOD_TCP_CONGESTION", getattr(request, "param", "auto"))
    everywhere = [PlannedLinks(world, range(len(HOSTS)), 0) for world in worlds()]
    acceptors = [LinkAcceptor(listen(["127.0.0.1"])[0], SECRET, 7, links.to_accept()) for links in everywhere]
    addresses = [acceptor.address for acceptor in acceptors]
    deadline = time.monotonic() + 60
    threads = [
        threading.Thread(target=links.open, args=(addresses, acceptor, deadline, nothing))
        for links, acceptor in zip(everywhere, acceptors)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield everywhere
    for one in (*everywhere, *acceptors):
        one.close()


TWIN = {constants.LINK_DATA_OUT: constants.LINK_DATA_IN, constants.LINK_DATA_IN: constants.LINK_DATA_OUT}


def test_both_ends_of_every_link_have_its_key_and_no_two_links_share_one(linked):
    keys = {}
    for rank, links in enumerate(linked):
        for link in links.for_engine():
            keys[(rank, link.peer, link.kind, link.hop)] = bytes(link.key)
            assert os.fstat(link.fd)
    assert len(keys) > 10 and bytes(32) not in keys.values()
    for (rank, peer, kind, hop), key in keys.items():
        assert keys[(peer, rank, TWIN.get(kind, kind), hop)] == key
    assert 2 * len(set(keys.values())) == len(keys)


def test_once_the_engine_has_them_nobody_else_closes_them(linked):
    descriptors = [link.fd for link in linked[0].for_engine()]
    linked[0].forget()
    linked[0].close()
    for descriptor in descriptors:
        os.close(descriptor)  # raises if it was closed already


def test_a_peer_that_cannot_be_reached_is_named_unless_its_own_reason_comes():
    (listener,) = listen(["127.0.0.1"])
    address = listener.getsockname()
    listener.close()
    links = PlannedLinks(worlds()[4], range(len(HOSTS)), 0)

    def reason():
        raise HorovodInternalError("rank 0 on a could not start: no disk")

    for check, text in ((nothing, r"could not connect to rank \d on \w at 127.0.0.1:"), (reason, "no disk")):
        with pytest.raises(HorovodInternalError, match=text):
            links.open([address] * 5, None, time.monotonic() + 10, check)
    links.close()


def control_of(descriptor):
    with socket.socket(fileno=os.dup(descriptor)) as sock:
        return congestion_control(sock)


@pytest.mark.parametrize("linked", ["reno", "system", "auto"], indirect=True)
def test_congestion_control_is_what_was_asked_for_or_the_systems_or_good_for_a_short_way(linked, request):
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
        systems = file.read().strip()
    near = "reno" if systems.startswith("bbr") else systems
    wanted = {"reno": "reno", "system": systems, "auto": near}[request.node.callspec.params["linked"]]
    found = [control_of(link.fd) for links in linked for link in links.for_engine()]
    assert found and set(found) == {wanted}
