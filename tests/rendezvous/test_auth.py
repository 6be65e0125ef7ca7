# SPDX-License-Identifier: Apache-2.0
"""Nobody gets in: what an Acceptor does with garbage, wrong secrets, replays, half-open and slow peers."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from horovod.rendezvous import auth, links
from horovod.rendezvous.links import PURPOSE, TAG_BYTES, Acceptor, Tag, addresses_of, announce, dial

SECRET = b"s" * 32
TAG = Tag(1, 0, 0, 3, 0)
fuzz = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextlib.contextmanager
def acceptor(expected=frozenset({TAG})):
    listener = links.listen("127.0.0.1")
    made = Acceptor(listener, SECRET, set(expected))
    try:
        yield made, addresses_of(listener)
    finally:
        made.close()


@pytest.fixture(scope="module")
def shared():
    """One acceptor for a whole fuzzing run: it must survive all of it."""
    with acceptor() as made:
        yield made


def soon():
    return time.monotonic() + 10


def gets_in(address):
    """Whether an honest peer still gets through; the proof that nothing before it stalled the acceptor."""
    with dial(*address, SECRET, TAG, soon()) as sock:
        return sock.fileno() >= 0


def closed_by_peer(sock):
    sock.settimeout(10)
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_both_sides_prove_the_secret_and_share_a_key():
    a, b = socket.socketpair()
    keys = []
    thread = threading.Thread(target=lambda: keys.append(auth.accept(a, SECRET)))
    thread.start()
    keys.append(auth.connect(b, SECRET))
    thread.join()
    assert keys[0] == keys[1] and len(keys[0]) == 32
    a.close()
    b.close()


@pytest.mark.parametrize("theirs, purpose", [(b"x" * 32, b""), (SECRET, b"store")])
def test_another_secret_or_purpose_is_refused_on_both_sides(theirs, purpose):
    a, b = socket.socketpair()
    errors = []

    def serve():
        try:
            auth.accept(a, SECRET, purpose=b"")
        except auth.AuthenticationError as error:
            errors.append(error)
        a.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises((auth.AuthenticationError, ConnectionError)):
        auth.connect(b, theirs, purpose=purpose)
    thread.join()
    assert errors
    b.close()


def test_the_expected_link_is_delivered_as_a_blocking_tuned_socket():
    with acceptor() as (made, address):
        assert made.missing() == [TAG] and not made.wait(0)
        with dial(*address, SECRET, TAG, soon()) as out:
            assert made.wait(10)
            (link,) = made.take().values()
            with link:
                assert link.getblocking() and not link.get_inheritable()
                assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                out.sendall(b"hello")
                assert link.recv(5) == b"hello"


def test_an_authenticated_peer_with_an_unexpected_tag_is_refused():
    with acceptor() as (made, address):
        stranger = dial(*address, SECRET, TAG._replace(from_rank=9), soon())
        assert closed_by_peer(stranger)
        stranger.close()
        assert made.missing() == [TAG]


def test_the_same_link_twice_is_refused():
    with acceptor() as (made, address):
        first = dial(*address, SECRET, TAG, soon())
        assert made.wait(10)
        second = dial(*address, SECRET, TAG, soon())
        assert closed_by_peer(second)
        assert len(made.take()) == 1
        first.close()
        second.close()


@fuzz
@given(st.binary(min_size=0, max_size=300))
def test_garbage_is_refused_and_the_next_honest_peer_gets_in(shared, data):
    made, address = shared
    with socket.create_connection(address) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        assert closed_by_peer(sock)
    assert gets_in(address)
    for link in made.take().values():
        link.close()


@fuzz
@given(st.binary(min_size=auth.PROOF_BYTES + TAG_BYTES, max_size=400))
def test_a_right_hello_with_a_wrong_proof_learns_nothing(shared, data):
    _, address = shared
    with socket.create_connection(address) as sock:
        sock.sendall(auth.hello())
        received = sock.recv(auth.HELLO_BYTES)
        with contextlib.suppress(OSError):
            sock.sendall(data)
        rest = b""
        with contextlib.suppress(OSError):
            while part := sock.recv(4096):
                rest += part
        assert received.startswith(auth.MAGIC)
        assert rest == b"", "the server must not prove itself to a peer that did not"


@fuzz
@given(st.binary(min_size=TAG_BYTES, max_size=TAG_BYTES))
def test_a_tag_that_is_not_signed_is_refused(shared, data):
    _, address = shared
    with socket.create_connection(address) as sock:
        auth.connect(sock, SECRET, 10, PURPOSE)
        with contextlib.suppress(OSError):
            sock.sendall(data)
        assert closed_by_peer(sock)


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

        announce(Recorder(socket.create_connection(address)), SECRET, TAG, soon())
        assert made.wait(10)
        for link in made.take().values():
            link.close()
        with socket.create_connection(address) as sock:
            with contextlib.suppress(OSError):
                for data in recorded:
                    sock.sendall(data)
            assert closed_by_peer(sock)
        assert made.take() == {}


def test_silent_and_slow_peers_do_not_hold_up_others():
    with acceptor() as (made, address):
        silent = [socket.create_connection(address) for _ in range(50)]
        for sock in silent[:25]:
            sock.sendall(auth.MAGIC)  # half a hello, then nothing
        assert gets_in(address)
        assert made.wait(10)
        for sock in silent:
            sock.close()


def test_more_strangers_than_the_limit_drop_the_oldest(monkeypatch):
    monkeypatch.setattr(links, "MAX_STRANGERS", 8)
    with acceptor() as (made, address):
        crowd = [socket.create_connection(address) for _ in range(30)]
        assert closed_by_peer(crowd[0])
        assert gets_in(address)
        assert made.wait(10)
        for sock in crowd:
            sock.close()


def test_a_peer_that_does_not_prove_itself_in_time_is_dropped(monkeypatch):
    monkeypatch.setattr(auth, "HANDSHAKE_SECONDS", 0.2)
    with acceptor() as (_, address), socket.create_connection(address) as sock:
        assert closed_by_peer(sock)


def test_refusals_are_logged_with_the_peers_address(caplog):
    with acceptor() as (_, address), socket.create_connection(address) as sock:
        mine = sock.getsockname()
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: scanner/1.0\r\n\r\n")
        assert closed_by_peer(sock)
    assert any(f"{mine[0]}:{mine[1]}" in record.getMessage() for record in caplog.records)


def test_dialling_something_else_is_an_error_not_a_hang():
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=lambda: server.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2 " * 10))
        thread.start()
        with pytest.raises(OSError):
            dial(*server.getsockname(), SECRET, TAG, soon())
        thread.join()
