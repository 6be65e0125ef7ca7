# SPDX-License-Identifier: Apache-2.0
"""Connecting to a service of the job that is late, gone, crowded, or somebody else."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from strangers import reset

from horovod.rendezvous.acceptor import Acceptor
from horovod.rendezvous.dialling import dial
from horovod.rendezvous.errors import HungUp
from horovod.rendezvous.network import address_of, listen

SECRET = b"s" * 32


def soon(seconds=60.0):
    return time.monotonic() + seconds


def silent(connection):
    yield 1


@pytest.fixture
def nobody():
    """An address where nobody listens."""
    (listener,) = listen(["127.0.0.1"])
    address = address_of(listener)
    listener.close()
    return address


def test_a_service_that_is_not_there_yet_is_waited_for(nobody):
    made = []

    def serve():
        made.append(Acceptor(listen([nobody[0]], nobody[1]), SECRET, b"x", silent))

    timer = threading.Timer(0.3, serve)
    timer.start()
    sock, key = dial(nobody, SECRET, b"x", soon(), waits=True)
    sock.close()
    timer.join()
    assert len(key) == 32 and sock.gettimeout() is None
    made[0].close()


def test_it_is_not_waited_for_in_vain(nobody):
    with pytest.raises(ConnectionRefusedError):
        dial(nobody, SECRET, b"x", soon(0.2), waits=True)
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("the job has failed")

    with pytest.raises(RuntimeError, match="the job has failed"):
        dial(nobody, SECRET, b"x", soon(), waits=True, check=check)


def test_a_name_that_is_not_known_yet_is_asked_for_again(monkeypatch):
    """A pod's name may appear after its peers have started."""
    acceptor = Acceptor(listen(["127.0.0.1"]), SECRET, b"x", silent)
    address = address_of(acceptor._listeners[0])
    asked = []

    def lookup(name, port, real=socket.getaddrinfo, **more):
        asked.append(name)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real("127.0.0.1", port, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    dial(("train-0.train", address[1]), SECRET, b"x", soon(), waits=True)[0].close()
    assert asked == ["train-0.train"] * 3
    acceptor.close()


def test_a_service_that_always_hangs_up_on_our_proof_holds_another_secret():
    visits = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def impostor():
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                visits.append(peer)
                peer.sendall(peer.recv(40))
                peer.recv(32)
                reset(peer)

        thread = threading.Thread(target=impostor, daemon=True)
        thread.start()
        with pytest.raises(HungUp):
            dial(server.getsockname(), SECRET, b"x", soon(), waits=True)
        assert len(visits) == 4, "a few more chances, not until the deadline"
        server.shutdown(socket.SHUT_RDWR)
