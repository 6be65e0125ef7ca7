# SPDX-License-Identifier: Apache-2.0
"""The job's store: what it promises to its ranks, and that strangers get nothing out of it or into it."""

from __future__ import annotations

import base64
import http.client
import os
import pickle
import queue
import re
import socket
import struct
import threading
import time
import types

import cloudpickle
import pytest

from horovod.rendezvous import (
    acceptor,
    auth,
    connection,
    generations,
    network,
    store_server,
    store_service,
    store_wire,
)
from horovod.rendezvous.errors import Dismissed, StoreError, StoreTimeout, Superseded
from horovod.rendezvous.generations import UNKNOWN, Claim, Seat
from horovod.rendezvous.identity import ranks_text
from horovod.rendezvous.readers.own import decode_secret, encode_secret
from horovod.rendezvous.store import StoreClient
from horovod.rendezvous.store_server import StoreServer

SECRET = auth.make_secret()


@pytest.fixture
def server():
    with StoreServer(SECRET, size=3) as one:
        yield one


def enter(server, rank=UNKNOWN, host=None, secret=SECRET):
    """A connection that has not joined a world yet."""
    return StoreClient("127.0.0.1", server.port, secret, rank=rank, host=host or f"host{rank}")


def claim(rank, size=3, host=None, group=(), worker="", pid=1):
    return Claim(worker, rank, size, group, host or f"host{rank}", pid)


def join(server, rank, size=3, host=None, secret=SECRET, **more):
    """A connection that has joined its world."""
    store = enter(server, rank, host, secret)
    try:
        store.join(claim(rank, size, host, **more))
    except StoreError:
        store.close()
        raise
    return store


def test_values_are_shared(server):
    with join(server, 0) as a, join(server, 1) as b:
        a.set("x", b"1")
        assert b.get("x") == b"1"
        b.set("x", b"2")
        assert a.get("x") == b"2"
        a.set("empty", b"")
        assert b.get("empty") == b""
        big = os.urandom(3 << 20)
        a.set("big", big)
        assert b.get("big") == big


def test_the_jobs_own_board_is_for_those_who_have_not_joined(server):
    with enter(server) as a, join(server, 1) as b:
        server.set("x", b"1")
        assert a.get("x") == b"1"
        a.set("result", b"2")
        assert server.get("result") == b"2"
        assert server.pop("result") == b"2" and server.pop("result") is None
        with pytest.raises(StoreTimeout):
            b.get("x", timeout=0.05)


def test_get_waits_for_set(server):
    with join(server, 0) as a, join(server, 1) as b:
        timer = threading.Timer(0.2, a.set, ("late", b"v"))
        timer.start()
        assert b.get("late", timeout=10) == b"v"
        timer.join()


def test_a_timeout_says_who_is_missing(server):
    with (
        join(server, 0) as a,
        pytest.raises(StoreTimeout, match=r"1 of 3 ranks connected, missing: ranks 1-2"),
    ):
        a.get("never", timeout=0.1)
    with join(server, 0) as a, join(server, 1), join(server, 2):
        with pytest.raises(StoreTimeout, match="all 3 ranks are connected, so one of them is stuck"):
            a.get("never", timeout=0.1)


def test_a_failure_reaches_everybody_in_its_generation_and_nobody_in_the_next(server):
    with join(server, 0) as a, join(server, 1) as b:
        threading.Timer(0.1, b.fail, ("out of disk on host1",)).start()
        with pytest.raises(StoreError, match="out of disk on host1"):
            a.get("never", timeout=30)
        with pytest.raises(StoreError, match="out of disk"):
            b.set("x", b"")
        a.done()
        b.done()
    with pytest.raises(StoreError, match="out of disk on host1"):
        join(server, 2)  # late, but it was expected: it hears of it once
    assert server.failure is None
    with join(server, 0) as a, join(server, 2) as c:
        a.set("x", b"1")
        assert c.get("x") == b"1"


def test_the_jobs_failure_reaches_everybody_for_ever(server):
    with join(server, 0) as a, enter(server) as helper:
        threading.Timer(0.1, server.fail, ("no more hosts",)).start()
        with pytest.raises(StoreError, match="no more hosts"):
            a.get("never", timeout=30)
        with pytest.raises(StoreError, match="no more hosts"):
            helper.set("x", b"")
    with pytest.raises(StoreError, match="no more hosts"):
        enter(server)
    assert server.failure == "no more hosts"


def test_a_rank_that_disappears_is_named(server):
    with join(server, 0) as a:
        b = join(server, 1, host="node7")
        threading.Timer(0.1, b.close).start()
        with pytest.raises(StoreError, match="rank 1 on node7 disappeared while the job was starting"):
            a.get("never", timeout=30)


def test_a_rank_that_is_done_may_go(server):
    with join(server, 0) as a:
        b = join(server, 1)
        b.done()
        b.close()
        with pytest.raises(StoreTimeout):
            a.get("never", timeout=0.5)


def test_a_rank_that_ended_before_it_came_is_named_at_once(server):
    with join(server, 0) as a:
        threading.Timer(0.1, server.lost, ("2", "rank 2 on node9 ended with exit code 7")).start()
        with pytest.raises(StoreError, match="rank 2 on node9 ended with exit code 7"):
            a.get("never", timeout=30)
        a.done()
    with pytest.raises(StoreError, match="exit code 7"):
        join(server, 1)
    with pytest.raises(StoreError, match="exit code 7"):
        join(server, 1)  # whoever tries again is told again: it does not come back
    with join(server, 2), join(server, 1) as b, join(server, 0) as a:  # unless a new process takes its place
        b.set("x", b"1")
        assert a.get("x") == b"1"


def test_two_processes_with_one_rank_are_named(server):
    with join(server, 1, host="a"), pytest.raises(StoreError, match="two processes say they are rank 1"):
        join(server, 1, host="b")


def test_a_wrong_size_is_named(server):
    with pytest.raises(StoreError, match="believes the job has 4 ranks, the launcher started 3"):
        join(server, 1, size=4)


def test_mixed_versions_are_named(server, monkeypatch):
    monkeypatch.setattr("horovod.rendezvous.store.__version__", "0.0.1")
    with pytest.raises(StoreError, match="rank 1 on host1 runs Horovod 0.0.1, .* same version on every host"):
        join(server, 1)


def test_clocks_that_differ_are_noticed(monkeypatch):
    fast = types.SimpleNamespace(time=lambda: time.time() + 100, monotonic=time.monotonic)
    monkeypatch.setattr("horovod.rendezvous.store.time", fast)
    notices = []
    with StoreServer(SECRET, notice=notices.append) as server, enter(server, host="node7"):
        pass
    (notice,) = notices  # the message was on its way for a while
    assert re.fullmatch(
        r"the clock of host node7 is \+(100|9\d) s off; timelines and logs will not line up", notice
    )


def seats(*workers):
    return {worker: Seat(rank, len(workers)) for rank, worker in enumerate(workers)}


def test_an_elastic_driver_gives_out_places_anew_for_each_generation():
    """Survivors and a newcomer, known by ids: who they are is asked at every join, and waited for."""
    events = queue.Queue()
    with StoreServer(SECRET, on_event=events.put) as server:
        assert server.assign(seats("a", "b", "c")) == 1
        stores = {name: enter(server, host=name) for name in "abc"}
        found = {name: store.join(claim(-1, -1, name, worker=name)) for name, store in stores.items()}
        assert {name: (s.rank, s.size, s.generation) for name, s in found.items()} == {
            "a": (0, 3, 1), "b": (1, 3, 1), "c": (2, 3, 1),
        }  # fmt: skip
        assert events.get(timeout=60) == store_server.Event("complete", 1)
        for name in "ab":
            stores[name].done()
        stores["c"].close()  # dies while the world forms
        assert events.get(timeout=60)[:2] == ("failed", 1)

        waiting = {}

        def wait(name, store):
            waiting[name] = store.join(claim(-1, -1, name, worker=name), timeout=30)

        newcomer = enter(server, host="d")
        clients = {"a": stores["a"], "b": stores["b"], "d": newcomer}
        threads = [threading.Thread(target=wait, args=one) for one in clients.items()]
        for thread in threads:
            thread.start()
        heard = {events.get(timeout=60) for _ in threads}
        assert heard == {store_server.Event("waiting", 1, name) for name in clients}
        assert server.assign(seats("b", "a", "d")) == 2
        for thread in threads:
            thread.join()
        assert events.get(timeout=60) == store_server.Event("complete", 2)
        assert {name: (s.rank, s.size, s.generation) for name, s in waiting.items()} == {
            "b": (0, 3, 2), "a": (1, 3, 2), "d": (2, 3, 2),
        }  # fmt: skip
        for store in clients.values():
            store.done()
            store.close()


def test_who_forms_a_world_that_the_driver_gave_up_is_sent_on_to_the_next():
    with StoreServer(SECRET) as server:
        server.assign(seats("a", "b"))
        with enter(server, host="a") as a:
            a.join(claim(-1, -1, "node1", worker="a"))
            threading.Timer(0.1, server.assign, (seats("b", "a", "c"),)).start()
            late = "rank 0 on node1 belongs to generation 1; the job is at 2"
            with pytest.raises(Superseded, match=late):
                a.get("table", timeout=30)
            with pytest.raises(Superseded, match=late):
                a.set("x", b"")
            assert a.join(claim(-1, -1, "node1", worker="a")) == Seat(1, 3, generation=2)


def test_a_worker_that_the_job_goes_on_without_is_told_so():
    with StoreServer(SECRET) as server:
        server.assign(seats("a"))
        with enter(server) as gone, enter(server) as other:
            timer = threading.Timer(0.1, server.dismiss, ("b", "node7[1] has been removed from elastic job"))
            timer.start()
            with pytest.raises(Dismissed, match="has been removed"):
                gone.join(claim(-1, -1, worker="b"), timeout=30)
            with pytest.raises(StoreTimeout, match="worker c on .* waited 0.05 s for a place"):
                other.join(claim(-1, -1, worker="c"), timeout=0.05)
            server.assign(seats("a", "b"))
            assert gone.join(claim(-1, -1, worker="b")).rank == 1  # and may be called back


def test_a_worker_without_a_rank_needs_a_driver(server):
    with enter(server) as a, pytest.raises(StoreError, match="'w' on .* asks for its rank"):
        a.join(claim(-1, -1, worker="w"))


def test_nobody_listens(server):
    port = server.port
    server.close()
    with pytest.raises(
        StoreTimeout, match=rf"could not reach the job's store at 127.0.0.1:{port} within 0.3 s"
    ):
        StoreClient("127.0.0.1", port, SECRET, timeout=0.3)


def test_a_closed_store_ends_its_clients_and_its_own_process_waits(server):
    with join(server, 0) as a:
        closing = threading.Timer(0.2, server.close)
        closing.start()
        with pytest.raises(StoreError, match="the job's store is closed"):
            server.get("never", timeout=30)
        with pytest.raises(StoreError, match="lost the connection to the job's store"):
            a.get("never", timeout=30)
        closing.join()
    with pytest.raises(StoreError, match="the job's store is closed"):
        server.set("x", b"")


def test_who_comes_before_the_server_is_complete_is_served_after(monkeypatch):
    """Workers may be started when the sockets listen; on a busy machine they are there first."""

    class Slow(acceptor.Acceptor):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            early.join(0.5)  # what has started by now has the time to serve

    monkeypatch.setattr(store_server, "Acceptor", Slow)
    sockets = network.listen(["127.0.0.1"])
    port = sockets[0].getsockname()[1]
    heard = queue.Queue()

    def come():
        with StoreClient("127.0.0.1", port, SECRET) as client:
            heard.put(client.get("later", timeout=30))

    early = threading.Thread(target=come, daemon=True)
    early.start()
    with StoreServer(SECRET, sockets=sockets) as server:
        server.set("later", b"it is")
        assert heard.get(timeout=30) == b"it is"
    early.join()


def test_it_listens_only_where_told():
    with StoreServer(SECRET, ["127.0.0.2"]) as server, pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=1)
    with StoreServer(SECRET, ["127.0.0.2", "127.0.0.3"]) as server:
        for address in ("127.0.0.2", "127.0.0.3"):
            StoreClient(address, server.port, SECRET).close()


@pytest.mark.parametrize(
    "ranks, text",
    [([], "ranks none"), ([3], "rank 3"), ([0, 1, 2, 7], "ranks 0-2, 7"), ([5, 1, 3], "ranks 1, 3, 5")],
)
def test_ranks_in_words(ranks, text):
    assert ranks_text(ranks) == text


def test_secrets_in_the_environment():
    assert decode_secret(encode_secret(SECRET)) == SECRET
    with pytest.raises(StoreError, match="not base64"):
        decode_secret("no!")
    with pytest.raises(StoreError, match="holds only 3 bytes"):
        decode_secret(base64.b64encode(b"abc").decode())


# ------------------------------------------------------------------------------------------ strangers


def test_a_wrong_secret_is_refused(server):
    with pytest.raises(StoreError, match="cannot join the job at 127.0.0.1"):
        join(server, 0, secret=auth.make_secret())
    with join(server, 0) as a:  # and nothing happened to the job
        a.set("x", b"1")
    assert server.failure is None


GARBAGE = {
    "nothing": b"",
    "one byte": b"\0",
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "noise": os.urandom(100_000),
    "zeros": bytes(100_000),
    "pickle": pickle.dumps({"a": 1}),
    "right magic, wrong proof": auth.MAGIC + bytes(32) + bytes(32) + bytes(1000),
}


@pytest.mark.parametrize("data", GARBAGE.values(), ids=GARBAGE)
def test_garbage_gets_no_answer_and_changes_nothing(server, data):
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(65536):
                answer += part
        except OSError:
            pass
    # Only somebody who speaks the protocol's first word may hear one back: a fresh nonce, never a proof.
    assert len(answer) <= (auth.HELLO_BYTES if data.startswith(auth.MAGIC) else 0)
    with join(server, 0) as a:
        a.set("x", b"1")
    assert server.failure is None


def test_a_port_scan_does_not_disturb_the_job(server):
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(200)]
    with join(server, 0) as a, join(server, 1) as b:
        a.set("x", b"1")
        assert b.get("x") == b"1"
    for sock in idle:
        sock.close()
    assert server.failure is None


def test_silent_strangers_are_hung_up_on(monkeypatch):
    monkeypatch.setattr(auth, "HANDSHAKE_SECONDS", 0.2)
    with (
        StoreServer(SECRET) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock,
    ):
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass


def handshake(port):
    sock = socket.create_connection(("127.0.0.1", port), timeout=60)
    return sock, auth.connect(sock, SECRET, store_wire.PURPOSE)


MALFORMED = {
    "no key length": b"\x03",
    "a key that is no text": b"\x03\0\1\xff",
    "an unknown verb": b"\x63\0\0",
    "a hello that is no JSON": b"\x01\0\0{",
    "a claim without a rank": b'\x02\0\0{"claim": {}, "seconds": 1}',
    "a time that is none": (
        b'\x02\0\0{"claim": {"worker": "", "rank": 1, "size": 3, "group": [], "host": "", "pid": 1}, '
        b'"seconds": [1]}'
    ),
    "a wait without a time": b"\x04\0\1x",
    "a wait for ever": b"\x04\0\1x" + struct.pack(">d", float("inf")),
    "nothing": b"",
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_of_a_member_ends_its_own_connection_only(server, payload):
    sock, key = handshake(server.port)
    with sock, join(server, 1) as b:
        sock.sendall(b"".join(store_wire.Signer(key, store_wire.TO_SERVER).frame(payload)))
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass
        b.set("x", b"1")
        assert b.get("x") == b"1"


@pytest.mark.parametrize("length", [store_wire.MAX_FRAME + 1, (1 << 64) - 1])
def test_an_oversized_frame_is_refused_before_memory_is_taken(server, length):
    sock, _ = handshake(server.port)
    with sock:
        sock.sendall(struct.pack(">Q", length))
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass


def test_a_forged_or_replayed_frame_is_refused(server):
    sock, key = handshake(server.port)
    signer = store_wire.Signer(key, store_wire.TO_SERVER)
    good = b"".join(signer.frame(store_wire.pack_request(store_wire.SET, "x", b"1")))
    with sock:
        sock.sendall(good)
        assert len(sock.recv(41, socket.MSG_WAITALL)) == 41  # length, verdict, HMAC
        sock.sendall(good)  # the same bytes again: the counter has moved on
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass
    sock, key = handshake(server.port)
    bad = bytearray(b"".join(store_wire.Signer(key, store_wire.TO_SERVER).frame(b"\x03\0\1y!")))
    bad[-34] ^= 1
    with sock:
        sock.sendall(bad)
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass
    assert server.pop("y") is None


def test_a_client_does_not_talk_to_an_impostor():
    """Whoever takes the server's place without the secret gets no proof it could use, and no message."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    heard = []

    def impostor():
        peer, _ = listener.accept()
        hello = peer.recv(1000)
        peer.sendall(hello)  # reflects what it was sent
        proof = peer.recv(1000)
        peer.sendall(proof)
        heard.append(peer.recv(1000))
        peer.close()

    thread = threading.Thread(target=impostor)
    thread.start()
    with pytest.raises(StoreError, match="does not hold this job's secret"):
        StoreClient("127.0.0.1", listener.getsockname()[1], SECRET, timeout=5)
    thread.join()
    listener.close()
    assert heard == [b""]


class Bomb:
    """Unpickling this leaves a file behind: proof that somebody's bytes were executed."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_cve_2024_10190_no_pickle_by_http_put(server, tmp_path):
    """A pickle sent by HTTP PUT to the rendezvous server must not run: there is no HTTP here at all."""
    proof = tmp_path / "executed"
    body = base64.b64encode(cloudpickle.dumps(Bomb(str(proof))))
    for path in ("/rank_and_size/localhost:0", "/worker_addresses/localhost:0", "/global/x", "/runfunc/func"):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.request("PUT", path, body=body)
            connection.getresponse()
        connection.close()
    assert not proof.exists()
    assert server._service.values == {} and server.failure is None


def test_cve_2026_31234_no_pickle_from_an_unauthenticated_server(tmp_path):
    """A worker must not unpickle what an unauthenticated key-value server hands it."""
    proof = tmp_path / "executed"
    payload = cloudpickle.dumps(Bomb(str(proof)))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()

    def attacker():
        peer, _ = listener.accept()
        peer.recv(1000)
        peer.sendall(auth.hello() + bytes(32))  # cannot prove the secret ...
        for frame in (payload, store_wire.LENGTH.pack(len(payload) + 1) + b"\0" + payload + bytes(32)):
            try:
                peer.sendall(frame)  # ... but sends the value at once
            except OSError:
                pass
        peer.close()

    thread = threading.Thread(target=attacker)
    thread.start()
    import subprocess
    import sys

    env = dict(
        os.environ,
        HOROVOD_RANK="0",
        HOROVOD_SIZE="1",
        HOROVOD_GLOO_RENDEZVOUS_ADDR="127.0.0.1",
        HOROVOD_GLOO_RENDEZVOUS_PORT=str(listener.getsockname()[1]),
        _HOROVOD_SECRET_KEY=encode_secret(SECRET),
    )
    worker = subprocess.run(
        [sys.executable, "-m", "horovod.runner.run_task"], env=env, capture_output=True, text=True, timeout=60
    )
    thread.join()
    listener.close()
    assert worker.returncode != 0 and "secret" in worker.stderr
    assert not proof.exists()


def test_nothing_in_the_store_can_unpickle():
    """Store, handshake and wire are fixed binary and JSON: they do not even import a pickle."""
    for module in (acceptor, connection, store_server, store_service, store_wire, generations, auth):
        with open(module.__file__, encoding="utf-8") as source:
            assert not re.search(r"import.*(pickle|marshal|shelve|yaml)|\beval\(|\bexec\(", source.read())
