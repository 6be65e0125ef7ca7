# SPDX-License-Identifier: Apache-2.0
"""Nobody gets in, and nobody holds up those who may: what an Acceptor does with strangers of all kinds."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strangers import closed_by_peer, reset
from world import worker_env

from horovod.rendezvous import acceptor as module
from horovod.rendezvous import auth
from horovod.rendezvous.acceptor import Acceptor
from horovod.rendezvous.dialling import dial
from horovod.rendezvous.network import address_of, listen

SECRET = b"s" * 32
fuzz = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def echo(connection):
    """A service: sends back what it is told, with its length before it."""
    connection.take_your_time()
    while True:
        (size,) = struct.unpack(">I", (yield 4))
        connection.send((yield size))


@contextlib.contextmanager
def serving(serve=echo):
    listeners = listen(["127.0.0.1"])
    address = address_of(listeners[0])
    made = Acceptor(listeners, SECRET, b"echo", serve)
    try:
        yield made, address
    finally:
        made.close()


@pytest.fixture(scope="module")
def shared():
    """One acceptor for a whole fuzzing run: it must survive all of it."""
    with serving() as made:
        yield made


def asks(address, text=b"hello"):
    """Whether an honest peer is served; the proof that nothing before it stalled the acceptor."""
    sock, _ = dial(address, SECRET, b"echo", time.monotonic() + 60, waits=False)
    with sock:
        sock.sendall(struct.pack(">I", len(text)) + text)
        answer = b""
        while len(answer) < len(text):
            part = sock.recv(1 << 16)
            assert part, "hung up"
            answer += part
    return answer == text


@fuzz
@given(st.binary(min_size=0, max_size=300))
def test_garbage_is_refused_and_the_next_honest_peer_is_served(shared, data):
    _, address = shared
    with socket.create_connection(address) as sock:
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        assert closed_by_peer(sock)
    assert asks(address)


@fuzz
@given(st.binary(min_size=auth.PROOF_BYTES, max_size=400))
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


def test_silent_and_slow_peers_do_not_hold_up_others():
    with serving() as (_, address):
        silent = [socket.create_connection(address) for _ in range(50)]
        for sock in silent[:25]:
            sock.sendall(auth.MAGIC)  # half a hello, then nothing
        assert asks(address)
        for sock in silent:
            sock.close()


def visits(address, seed, stop, crowd):
    """What a stranger may do, over and over: half a hello, noise, a reset, a connection left open."""
    source = random.Random(seed)
    for _ in itertools.count():
        if stop.is_set():
            return
        try:
            sock = socket.create_connection(address, timeout=5)
            kind = source.randrange(4)
            if kind == 0:
                sock.sendall(auth.hello()[: source.randrange(1, 41)])
            elif kind == 1:
                sock.sendall(os.urandom(source.randrange(1, 200)))
            if kind == 2:
                reset(sock)
            else:
                crowd.append(sock)
            while len(crowd) > 300:
                crowd.pop(0).close()
        except OSError:
            pass


def test_a_crowd_of_half_open_connections_ends_nothing(monkeypatch):
    """Beyond the limit the oldest goes, while its own event may be waiting in the same batch of events."""
    monkeypatch.setattr(module, "MAX_STRANGERS", 32)
    with serving() as (made, address):
        stop, crowd = threading.Event(), []
        strangers = [
            threading.Thread(target=visits, args=(address, seed, stop, crowd), daemon=True)
            for seed in range(4)
        ]
        for thread in strangers:
            thread.start()
        try:
            for _ in range(30):
                assert asks(address)
        finally:
            stop.set()
            for thread in strangers:
                thread.join()
        assert made.alive
        assert made.call(lambda: len(made._strangers)).result() <= 32
        for sock in crowd:
            sock.close()


def test_more_strangers_than_the_limit_drop_the_oldest(monkeypatch):
    monkeypatch.setattr(module, "MAX_STRANGERS", 8)
    with serving() as (_, address):
        crowd = [socket.create_connection(address) for _ in range(30)]
        assert closed_by_peer(crowd[0])
        assert asks(address)
        for sock in crowd:
            sock.close()


def test_a_peer_that_was_dropped_for_the_crowd_dials_again(monkeypatch):
    """The server hangs up on the first two attempts before it has said a word."""
    dropped = []

    def drops(self, sock, address, welcome=Acceptor._welcome):
        if len(dropped) < 2:
            dropped.append(address)
            reset(sock)
        else:
            welcome(self, sock, address)

    monkeypatch.setattr(Acceptor, "_welcome", drops)
    with serving() as (_, address):
        assert asks(address)
    assert len(dropped) == 2


def test_a_peer_that_does_not_prove_itself_in_time_is_dropped(monkeypatch):
    monkeypatch.setattr(auth, "HANDSHAKE_SECONDS", 0.2)
    with serving() as (_, address), socket.create_connection(address) as sock:
        assert closed_by_peer(sock)
        monkeypatch.undo()  # an honest peer of a busy machine may take longer
        assert asks(address)


def test_a_mistake_in_a_conversation_ends_that_one_only(caplog):
    def serve(connection):
        (first,) = yield 1
        if first == 0:
            raise ZeroDivisionError("a mistake of ours")
        connection.send(b"fine")
        yield 1

    with serving(serve) as (made, address):
        for byte, answer in ((b"\0", b""), (b"\1", b"fine")):
            sock, _ = dial(address, SECRET, b"echo", time.monotonic() + 60, waits=False)
            with sock:
                sock.sendall(byte)
                assert sock.recv(100) == answer
        assert made.alive
    assert "a mistake of ours" in caplog.text


def test_a_large_answer_waits_for_a_slow_reader():
    text = os.urandom(1 << 20) * 16
    with serving() as (_, address):
        sock, _ = dial(address, SECRET, b"echo", time.monotonic() + 60, waits=False)
        with sock:
            sender = threading.Thread(target=sock.sendall, args=(struct.pack(">I", len(text)) + text,))
            sender.start()
            sender.join()  # all of it was taken, though nobody has read a byte of the answer yet
            assert asks(address), "others are served meanwhile"
            answer = bytearray()
            while len(answer) < len(text):
                answer += sock.recv(1 << 16)
        assert answer == text


def test_refusals_are_logged_with_the_peers_address(caplog):
    with serving() as (_, address), socket.create_connection(address) as sock:
        mine = sock.getsockname()
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: scanner/1.0\r\n\r\n")
        assert closed_by_peer(sock)
    assert any(f"{mine[0]}:{mine[1]}" in record.getMessage() for record in caplog.records)


def test_refusals_are_logged_at_most_once_a_second(caplog):
    began = time.monotonic()
    with serving() as (_, address):
        for _ in range(300):
            with socket.create_connection(address) as sock:
                sock.sendall(bytes(40))
                assert closed_by_peer(sock)
    lines = [record for record in caplog.records if "refused a connection" in record.getMessage()]
    assert 1 <= len(lines) <= time.monotonic() - began + 2
    counted = sum(int(more) for line in lines for more in re.findall(r"\(and (\d+) more", line.getMessage()))
    assert counted + len(lines) == 300


FEW_DESCRIPTORS = """
import resource, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from horovod.rendezvous.store_server import StoreServer
store = StoreServer(b"s" * 32)
print(store.port, flush=True)
sys.stdin.readline()
print(sum(thread.is_alive() for thread in threading.enumerate() if thread.name == "horovod-store"))
"""


def test_silent_connections_do_not_use_up_the_descriptors():
    """More strangers than the process may have files: ranks still come and go, and the log stays short."""
    from horovod.rendezvous.store import StoreClient

    began = time.monotonic()
    server = subprocess.Popen(
        [sys.executable, "-c", FEW_DESCRIPTORS], env=worker_env(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    port = int(server.stdout.readline())
    crowd = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(200)]
    clients = []
    for number in range(20):
        clients.append(StoreClient("127.0.0.1", port, SECRET, timeout=60))
        clients[-1].set(f"key {number}", b"value")
        assert clients[0].get(f"key {number}") == b"value"
    out, errors = server.communicate("\n", timeout=60)
    for one in (*clients, *crowd):
        one.close()
    assert out.strip() == "1", "the store's thread is alive"
    assert len(errors.splitlines()) <= time.monotonic() - began + 2, errors


def test_without_a_descriptor_left_newcomers_wait_until_there_is_one():
    """No stranger to drop: peers wait in the kernel's queue, and the acceptor says that it is exhausted."""
    script = """
import os, resource, socket, sys, threading, time
from horovod.rendezvous import acceptor as module
from horovod.rendezvous.acceptor import Acceptor
from horovod.rendezvous.dialling import dial
from horovod.rendezvous.network import address_of, listen
listeners = listen(["127.0.0.1"])
address = address_of(listeners[0])
module._EXHAUSTED_SECONDS = 0.2
def serve(connection):
    connection.send(b"!")
    yield 1
made = Acceptor(listeners, b"s" * 32, b"x", serve)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
def ask():
    sock, _ = dial(address, b"s" * 32, b"x", time.monotonic() + 30, waits=False)
    print("served", sock.recv(1), flush=True)
ready = os.dup(0)
resource.setrlimit(resource.RLIMIT_NOFILE, (ready + 1, hard))  # room for one socket: the client's own
os.close(ready)
client = threading.Thread(target=ask)
client.start()
while not made.exhausted:
    time.sleep(0.01)
print("exhausted", flush=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
client.join()
made.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=worker_env(), capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["exhausted", "served b'!'"], done.stderr
    assert "no descriptor left" in done.stderr
