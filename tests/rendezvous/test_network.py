# SPDX-License-Identifier: Apache-2.0
"""Which host is this one, and which address leads where."""

from __future__ import annotations

import errno
import socket

import pytest

from horovod.rendezvous import network, over_mpi
from horovod.rendezvous.errors import CannotListen


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", socket.gethostname()])
def test_this_machine_is_recognised(host):
    assert network.is_local(host)


@pytest.mark.parametrize("host", ["198.51.100.7", "no-such-host.invalid"])
def test_others_are_not(host):
    assert not network.is_local(host)


def test_a_slurm_node_name_is_this_machine(monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "no-such-host.invalid")
    assert network.is_local("no-such-host.invalid")


def test_interfaces():
    assert network.interface_address("lo") == "127.0.0.1"
    with pytest.raises(ValueError, match="nope0 does not exist or has no address; interfaces here: .*lo"):
        network.interface_address("nope0")
    assert not [address for address in network.own_addresses() if address.startswith("127.")]


def test_without_a_network_there_is_the_loopback_interface(monkeypatch):
    monkeypatch.setattr(network, "route_to", lambda target: None)
    monkeypatch.setattr(network, "own_addresses", list)
    assert network.primary_address("somewhere") == "127.0.0.1"
    monkeypatch.setattr(network, "own_addresses", lambda: ["10.0.0.9"])
    assert network.primary_address("somewhere") == "10.0.0.9"


def test_listeners_share_a_port_and_a_taken_one_is_named():
    sockets = network.listen(["127.0.0.2", "127.0.0.3"])
    ports = {network.address_of(sock)[1] for sock in sockets}
    assert len(ports) == 1 and not any(sock.get_inheritable() for sock in sockets)
    with pytest.raises(CannotListen, match=rf"cannot listen on 127.0.0.3:{min(ports)}"):
        network.listen(["127.0.0.3"], min(ports))
    for sock in sockets:
        sock.close()


def test_a_port_that_another_address_uses_is_not_taken(monkeypatch):
    """The kernel gives the first address a port that is free there, and knows nothing of the others."""
    other = socket.create_server(("127.0.0.3", 0))
    taken, asked = other.getsockname()[1], []

    class Unlucky(socket.socket):
        def bind(self, address):
            asked.append(address)
            super().bind((address[0], taken) if len(asked) == 1 else address)

    monkeypatch.setattr(network.socket, "socket", Unlucky)
    sockets = network.listen(["127.0.0.2", "127.0.0.3"])
    ports = {network.address_of(sock)[1] for sock in sockets}
    assert asked[:3] == [("127.0.0.2", 0), ("127.0.0.3", taken), ("127.0.0.2", 0)]
    assert len(sockets) == 2 and len(ports) == 1 and taken not in ports
    for sock in (other, *sockets):
        sock.close()


def test_an_address_of_another_machine_is_named_at_once():
    with pytest.raises(CannotListen, match="cannot listen on 198.51.100.7:") as refused:
        network.listen(["127.0.0.2", "198.51.100.7"])
    assert refused.value.errno == errno.EADDRNOTAVAIL


def card(machine, *addresses):
    return {"machine": machine, "addresses": list(addresses)}


@pytest.mark.parametrize(
    "cards, expected",
    [
        ([card("m0", "10.0.0.1"), card("m0", "10.0.0.1")], ["127.0.0.1"]),
        ([card("m0", "10.0.0.1"), card("m1", "10.0.0.2")], ["to 10.0.0.2"]),
        # both have a container bridge of the same address, listed first
        ([card("m0", "172.17.0.1", "10.0.0.1"), card("m1", "172.17.0.1", "10.0.0.2")], ["to 10.0.0.2"]),
        (
            [card("m0", "10.0.0.1"), card("m1", "10.9.9.9", "10.0.0.2")],
            ["to 10.0.0.2"],
        ),  # no route to the first
    ],
)
def test_rank_0_serves_where_the_others_can_reach_it(monkeypatch, cards, expected):
    monkeypatch.setattr(over_mpi, "route_to", lambda to: None if to == "10.9.9.9" else f"to {to}")
    assert over_mpi._addresses_for(cards) == expected
