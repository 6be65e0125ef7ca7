# SPDX-License-Identifier: Apache-2.0
"""Nobody on the path between two hosts gets an object of his own unpickled, or an old one again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import Processes
from tests_support import run_world

from horovod.common import seals, topology
from horovod.common.exceptions import HorovodInternalError
from horovod.common.seals import HEAD_BYTES, Messages
from horovod.rendezvous.world import World


def world(rank, generation=1, hosts=("node1", "node2"), secret=b"s" * 32):
    table = [{"address": "", "host": host, "host_key": host} for host in hosts]
    return World(rank, table, secret, generation)


@pytest.fixture
def standing(monkeypatch):
    """Lets a test stand at a rank of a world, with nothing counted yet."""

    def stand(at):
        seals.reset()
        monkeypatch.setattr(topology, "world", lambda: at)

    yield stand
    seals.reset()


def sent(data, standing, at=None, sender=0, name="object", process_set=0, number=0):
    """The head of a message as its sender makes it."""
    standing(at or world(0))
    for _ in range(number):
        Messages(name, process_set).exchanged()
    return Messages(name, process_set).head(sender, data)


def test_a_message_arrives_as_it_was_sent(standing):
    head = sent(b"data", standing)
    standing(world(1))
    received = Messages("object", 0)
    assert len(head) == HEAD_BYTES and received.size_in(0, head) == 4
    received.check(0, head, b"data")


OTHERS = {
    "another job": {"at": world(0, secret=b"t" * 32)},
    "another generation": {"at": world(0, generation=2)},
    "another name": {"name": "other"},
    "another set": {"process_set": 1},
    "another sender": {"sender": 1},
    "the second of its name": {"number": 1},
    "no seal at all": {"at": world(0, hosts=("node1",))},
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_message_from_elsewhere_is_refused(other, standing):
    head = sent(b"data", standing, **other)
    standing(world(1))
    received = Messages("object", 0)
    text = "the object 'object' from rank 0 on node1 was altered on its way to rank 1 on node2"
    with pytest.raises(HorovodInternalError, match=text):
        received.size_in(0, head)
    with pytest.raises(HorovodInternalError, match=text):
        received.check(0, head, b"data")


def test_a_message_cannot_be_played_again(standing):
    head = sent(b"data", standing)
    standing(world(1))
    first = Messages("object", 0)
    first.check(0, head, b"data")
    first.exchanged()
    with pytest.raises(HorovodInternalError):
        Messages("object", 0).check(0, head, b"data")


def test_a_set_that_got_an_old_ones_number_does_not_take_its_messages(standing):
    standing(world(0))
    seals.set_registered(3)
    head = Messages("object", 3).head(0, b"data")
    standing(world(1))
    for _ in range(2):
        seals.set_registered(3)
    with pytest.raises(HorovodInternalError):
        Messages("object", 3).check(0, head, b"data")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=100), st.data())
def test_any_altered_bit_is_noticed(data, choice):
    seals.reset()
    topology_world, topology.world = topology.world, lambda: world(1)
    try:
        sealed = Messages("object", 0)
        everything = bytearray(sealed.head(0, data) + data)
        bit = choice.draw(st.integers(0, 8 * len(everything) - 1))
        everything[bit // 8] ^= 1 << bit % 8
        head, payload = everything[:HEAD_BYTES], everything[HEAD_BYTES:]
        with pytest.raises(HorovodInternalError):
            sealed.size_in(0, head)
            sealed.check(0, head, payload)
    finally:
        topology.world = topology_world


# Every connection between the ranks goes through a relay that exchanges one word for another, both ways.
RELAY = """
import socket, threading
from horovod.rendezvous import dialling

def pump(source, target):
    while data := source.recv(1 << 16):
        target.sendall(data.replace(b"ORIGINAL", b"REPLACED"))
    target.shutdown(socket.SHUT_WR)

def relayed(address, deadline, connected=dialling._connected):
    real = connected(address, deadline)
    if real.family == socket.AF_UNIX or address[1] == int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]):
        return real
    real.settimeout(None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        mine = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    for ends in ((theirs, real), (real, theirs)):
        threading.Thread(target=pump, args=ends, daemon=True).start()
    return mine

dialling._connected = relayed
"""
EXCHANGE = (
    RELAY
    + """
hvd.init()
say(hvd.broadcast_object("fine", 0))
attempt(lambda: say(hvd.{call}))
"""
)


@pytest.mark.parametrize(
    "call", ["broadcast_object(['ORIGINAL'] * 9, 0)", "allgather_object(['ORIGINAL'] * 9)"]
)
def test_an_object_that_somebody_on_the_path_replaced_is_not_unpickled(call):
    """Someone who relays the handshake can alter what follows; the pickle would have been his."""
    with Processes(EXCHANGE.format(call=call), 2, hosts=["node1", "node2"]) as ranks:
        heard = []
        for rank in (0, 1):
            assert ranks.heard(rank) == "fine"
            heard.append(ranks.heard(rank))
        refused = [one for one in heard if isinstance(one, dict)]
        assert refused and all(one["error"] == "HorovodInternalError" for one in refused)
        assert "from rank 0 on node1 was altered on its way to rank 1 on node2" in heard[1]["text"]
        assert not any("REPLACED" in str(one) for one in heard)


def on_sets():
    import horovod.numpy as hvd

    hvd.init(process_sets="dynamic")
    got = []
    for _ in range(3):
        pair = hvd.add_process_set([0, 2])
        if pair.included():
            got += [hvd.broadcast_object(hvd.rank(), 2, process_set=pair) for _ in range(3)]
            got.append(hvd.allgather_object(hvd.rank(), process_set=pair))
        got.append(hvd.broadcast_object(hvd.rank(), 1))
        hvd.barrier()
        hvd.remove_process_set(pair)
    return got


def test_sealed_objects_on_sets_that_come_and_go():
    for rank, got in enumerate(run_world(on_sets, 3, hosts="localhost:1,127.0.0.1:2")):
        assert got == ([1] if rank == 1 else [2, 2, 2, [0, 2], 1]) * 3
