# SPDX-License-Identifier: Apache-2.0
"""The handshake: both ends prove the secret, for one purpose, and share a key that nobody else has."""

from __future__ import annotations

import socket
import threading

import pytest

from horovod.rendezvous import auth
from horovod.rendezvous.errors import AuthenticationError, HungUp

SECRET = b"s" * 32


def serve(sock, purpose=b"link"):
    """The server's side on a blocking socket; returns its key."""
    steps = auth.accept(SECRET, purpose, sock.sendall)
    wanted = next(steps)
    try:
        while True:
            data = b""
            while len(data) < wanted:
                part = sock.recv(wanted - len(data))
                assert part, "the client hung up"
                data += part
            wanted = steps.send(data)
    except StopIteration as done:
        return done.value


def both(client, purpose=b"link"):
    """Runs a client against the server; returns (client's outcome, server's outcome), keys or exceptions."""
    a, b = socket.socketpair()
    outcome = {}

    def run(name, function, sock):
        try:
            outcome[name] = function(sock)
        except Exception as error:
            outcome[name] = error
        sock.close()

    thread = threading.Thread(target=run, args=("server", lambda sock: serve(sock, purpose), a))
    thread.start()
    run("client", client, b)
    thread.join()
    return outcome["client"], outcome["server"]


def test_both_sides_prove_the_secret_and_share_a_key():
    mine, theirs = both(lambda sock: auth.connect(sock, SECRET, b"link"))
    again, _ = both(lambda sock: auth.connect(sock, SECRET, b"link"))
    assert mine == theirs and len(mine) == 32
    assert again != mine, "each connection has a key of its own"


@pytest.mark.parametrize("secret, purpose", [(b"x" * 32, b"link"), (SECRET, b"store")])
def test_another_secret_or_purpose_is_refused_on_both_sides(secret, purpose):
    client, server = both(lambda sock: auth.connect(sock, secret, purpose))
    assert isinstance(client, HungUp) and not client.early
    assert isinstance(server, AuthenticationError) and "does not hold this job's secret" in str(server)


def test_a_server_that_reflects_or_guesses_is_refused():
    for answer in (lambda hello: hello, lambda hello: auth.hello()):
        a, b = socket.socketpair()

        def impostor(a=a, answer=answer):
            a.sendall(answer(a.recv(100)))
            a.sendall(a.recv(100))  # the client's own proof

        thread = threading.Thread(target=impostor)
        thread.start()
        with pytest.raises(AuthenticationError, match="does not hold this job's secret"):
            auth.connect(b, SECRET, b"link")
        thread.join()
        a.close()
        b.close()


def test_a_peer_that_hangs_up_at_once_has_judged_nobody():
    a, b = socket.socketpair()
    a.close()
    with pytest.raises(HungUp) as caught:
        auth.connect(b, SECRET, b"link")
    assert caught.value.early
    b.close()


def test_a_silent_peer_is_given_up():
    a, b = socket.socketpair()
    with pytest.raises(AuthenticationError, match="in time"):
        auth.connect(b, SECRET, b"link", timeout=0.1)
    a.close()
    b.close()


def test_keys_for_different_uses_have_nothing_in_common():
    assert len({auth.derived_key(SECRET, use) for use in (b"link", b"objects", b"")} | {SECRET}) == 4
