# SPDX-License-Identifier: Apache-2.0
"""Links between ranks: announced, expected, of this generation, with a key for the engine."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strangers import closed_by_peer

from horovod.rendezvous import auth
from horovod.rendezvous.dialling import dial
from horovod.rendezvous.links import PURPOSE, TAG_BYTES, LinkAcceptor, Tag, announce, open_link
from horovod.rendezvous.network import address_of, listen

SECRET = b"s" * 32
TAG = Tag(1, 0, 0, 3, 0, 5)
fuzz = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextlib.contextmanager
def acceptor(expected=(TAG,)):
    (listener,) = listen(["127.0.0.1"])
    made = LinkAcceptor(listener, SECRET, 5, expected)
    try:
        yield made, address_of(listener)
    finally:
        made.close()


@pytest.fixture(scope="module")
def shared():
    """One acceptor for a whole fuzzing run: it must survive all of it."""
    with acceptor() as made:
        yield made


def soon():
    return time.monotonic() + 60


def opened(address, tag=TAG):
    return open_link(address, SECRET, tag, soon())


def test_the_expected_link_is_delivered_as_a_blocking_tuned_socket():
    with acceptor() as (made, address):
        assert made.missing() == [TAG] and not made.wait(0)
        with opened(address).sock as out:
            assert made.wait(60)
            (link,) = made.take().values()
            with link.sock as sock:
                assert sock.getblocking() and not sock.get_inheritable()
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                out.sendall(b"hello")
                assert sock.recv(5) == b"hello"


def test_both_ends_of_a_link_hold_its_key_and_no_other_link_does():
    other = TAG._replace(hop=1)
    with acceptor((TAG, other)) as (made, address):
        mine = {tag: opened(address, tag) for tag in (TAG, other)}
        assert made.wait(60)
        theirs = made.take()
        assert mine[TAG].key == theirs[TAG].key and mine[other].key == theirs[other].key
        assert len({mine[TAG].key, mine[other].key, SECRET, bytes(32)}) == 4
        for link in (*mine.values(), *theirs.values()):
            link.sock.close()


def test_silence_is_endured_as_long_as_the_setting_says(monkeypatch):
    monkeypatch.setenv("HOROVOD_NETWORK_TIMEOUT_SECONDS", "60")
    with acceptor() as (made, address), opened(address).sock as out:
        assert made.wait(60)
        with made.take()[TAG].sock as accepted:
            for sock in (out, accepted):
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
                names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                idle, every, count = (sock.getsockopt(socket.IPPROTO_TCP, name) for name in names)
                assert idle + every * count == 60


@pytest.mark.parametrize(
    "tag, reason",
    [
        (TAG._replace(from_rank=9), "nobody waits for"),
        (TAG._replace(generation=2), "it is rank 3 of generation 2; the job is at 5"),
    ],
)
def test_who_proves_the_secret_but_is_not_expected_is_refused_by_name(tag, reason, caplog):
    with acceptor() as (made, address):
        with opened(address, tag).sock as stranger:
            assert closed_by_peer(stranger)
        assert made.missing() == [TAG]
    assert reason in caplog.text


def test_the_same_link_twice_is_refused():
    with acceptor() as (made, address):
        first = opened(address).sock
        assert made.wait(60)
        with opened(address).sock as second:
            assert closed_by_peer(second)
        assert len(made.take()) == 1
        first.close()


def test_links_that_come_before_they_are_expected_are_kept():
    with acceptor(None) as (made, address):
        early, wrong = opened(address).sock, opened(address, TAG._replace(hop=7)).sock
        assert not made.wait(0.05)
        made.expect([TAG])
        assert made.wait(60) and closed_by_peer(wrong)
        for sock in (early, wrong, *(link.sock for link in made.take().values())):
            sock.close()


@fuzz
@given(st.binary(min_size=TAG_BYTES, max_size=TAG_BYTES))
def test_a_tag_that_is_not_signed_is_refused(shared, data):
    made, address = shared
    sock, _ = dial(address, SECRET, PURPOSE, soon(), waits=False)
    with sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
        assert closed_by_peer(sock)
    assert made.missing() == [TAG]


def test_a_recorded_conversation_cannot_be_replayed():
    with acceptor() as (made, address):
        recorded = []

        class Recorder:
            """Passes everything on and remembers what the client sent."""

            def __init__(self, sock):
                self._sock = sock

            def __getattr__(self, name):
                return getattr(self._sock, name)

            def sendall(self, data):
                recorded.append(data)
                self._sock.sendall(data)

        recorder = Recorder(socket.create_connection(address))
        announce(recorder, auth.connect(recorder, SECRET, PURPOSE), TAG)
        assert made.wait(60)
        for link in made.take().values():
            link.sock.close()
        with socket.create_connection(address) as sock:
            with contextlib.suppress(OSError):
                for data in recorded:
                    sock.sendall(data)
            assert closed_by_peer(sock)
        assert made.take() == {}


def test_dialling_something_else_is_an_error_not_a_hang():
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2 " * 10))
        thread.start()
        with pytest.raises(OSError, match="does not speak Horovod's protocol"):
            opened(server.getsockname())
        thread.join()


def test_dialling_nobody_is_an_error_at_once():
    (listener,) = listen(["127.0.0.1"])
    address = address_of(listener)
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        opened(address)
