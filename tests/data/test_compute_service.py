# SPDX-License-Identifier: Apache-2.0
"""The compute service and its clients, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from horovod.common.exceptions import TimeoutException
from horovod.data import compute_service
from horovod.data.compute_client import ComputeClient
from horovod.data.compute_service import ComputeService
from horovod.rendezvous import store_wire
from horovod.rendezvous.auth import make_secret
from horovod.rendezvous.dialling import dial
from horovod.rendezvous.errors import CannotListen

KEY = make_secret()


@pytest.fixture
def service():
    with ComputeService(2, 2, KEY) as service:
        yield service


@pytest.fixture
def client(service):
    return ComputeClient(service.addresses(), KEY)


def test_where_it_is(service):
    addresses = service.addresses()
    assert addresses["lo"][0][0] in ("127.0.0.1", "::1")
    assert len({port for places in addresses.values() for _, port in places}) == 1
    with ComputeService(1, 1, KEY, nics=["lo"]) as only:
        assert list(only.addresses()) == ["lo"]
        ComputeClient(only.addresses(), KEY, verbose=2).register_dispatcher(0, "a")
    with pytest.raises(ValueError, match="nonsense0 does not exist"):
        ComputeService(1, 1, KEY, nics=["nonsense0"])


def test_an_interface_that_goes_away_meanwhile_is_left_out(monkeypatch):
    listed = [{"lo": "127.0.0.1", "gone0": "198.51.100.9"}, {"lo": "127.0.0.1"}]
    monkeypatch.setattr(
        compute_service, "_interfaces", lambda nics: listed.pop(0) if listed[1:] else listed[0]
    )
    with ComputeService(1, 1, KEY) as service:
        assert list(service.addresses()) == ["lo"]
    monkeypatch.setattr(compute_service, "_interfaces", lambda nics: {"there0": "198.51.100.9"})
    with pytest.raises(CannotListen, match="198.51.100.9"):
        ComputeService(1, 1, KEY)


def test_those_who_wait_are_told(client):
    """Waiting comes first here, registering second."""
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(client.wait_for_dispatcher_registration, 1, 60) for _ in range(2)]
        full = pool.submit(client.wait_for_dispatcher_worker_registration, 1, 60)
        client.register_dispatcher(1, "grpc://a:1")
        assert [one.result() for one in found] == ["grpc://a:1"] * 2
        client.register_worker_for_dispatcher(1, 0)
        client.register_worker_for_dispatcher(1, 1)
        assert full.result() is None
    assert client.wait_for_dispatcher_registration(1, 0) == "grpc://a:1"
    client.wait_for_dispatcher_worker_registration(1, 0)


def test_errors_come_back_as_they_are(client):
    said = r"^Dispatcher id must be within \[0..1\]: 2$"
    for call in (
        lambda: client.register_dispatcher(2, "a"),
        lambda: client.register_worker_for_dispatcher(2, 0),
        lambda: client.wait_for_dispatcher_registration(2, 5),
        lambda: client.wait_for_dispatcher_worker_registration(2, 5),
    ):
        with pytest.raises(IndexError, match=said):
            call()
    client.register_dispatcher(0, "a")
    with pytest.raises(ValueError, match="Dispatcher with id 0 has already been registered under"):
        client.register_dispatcher(0, "b")


@pytest.mark.parametrize(
    "wait, who, what",
    [
        ("wait_for_dispatcher_registration", "dispatcher 1", "dispatcher"),
        ("wait_for_dispatcher_worker_registration", "workers for dispatcher 1", "workers"),
    ],
)
def test_too_late(client, wait, who, what):
    with pytest.raises(TimeoutException) as caught:
        getattr(client, wait)(1, 0.1)
    assert str(caught.value) == (
        f"Timed out waiting for {who} to register. Try to find out what takes the {what} so long to register "
        "or increase timeout. Timeout after 0.1 seconds."
    )


@pytest.mark.parametrize("through", ["client", "service"])
def test_shutdown(service, client, through):
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(client.wait_for_shutdown), pool.submit(service.wait_for_shutdown)]
        client.register_dispatcher(0, "a")  # it still serves
        assert not any(one.done() for one in waiting[1:])
        (client if through == "client" else service).shutdown()
        for one in waiting:
            assert one.result(60) is None
    service.shutdown()
    client.shutdown()  # once more does no harm
    client.wait_for_shutdown()
    with pytest.raises(
        ConnectionError, match="cannot reach the compute service at .* Do its workers still run?"
    ):
        client.register_dispatcher(0, "a")
    assert not [one for one in threading.enumerate() if one.name == "horovod-compute"]


def test_a_wrong_key_gets_nowhere(service, client):
    stranger = ComputeClient(service.addresses(), make_secret())
    with pytest.raises(ConnectionError, match="cannot reach the compute service"):
        stranger.shutdown()
    client.register_dispatcher(0, "a")
    assert not service._shut_down.is_set()


@pytest.mark.parametrize(
    "payload", [b"", b"{}", b"[]", b"\x80\x04.", b'{"do": "eval", "args": [], "seconds": 0}',
                b'{"do": "register_worker", "args": ["x", {}], "seconds": 0}', bytes(range(200))],
    ids=range(7),
)  # fmt: skip
def test_nonsense_from_a_friend_ends_that_connection_only(service, client, payload):
    """Who holds the key may still send what makes no sense."""
    (place,) = service.addresses()["lo"]
    sock, key = dial(place, KEY, b"compute", time.monotonic() + 60, waits=False)
    with sock:
        for part in store_wire.Signer(key, store_wire.TO_SERVER).frame(payload):
            sock.sendall(part)
        sock.settimeout(60)
        answer = sock.recv(1 << 16)
    assert answer == b"" or b"ValueError" in answer
    client.register_dispatcher(0, "a")


def test_strangers(service, client):
    (place,) = service.addresses()["lo"]
    with socket.create_connection(place) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))
        sock.settimeout(60)
        try:
            assert sock.recv(100) == b""
        except ConnectionResetError:
            pass
    client.register_dispatcher(0, "a")


def test_the_old_path():
    from horovod.runner.common.service import compute_service

    assert (compute_service.ComputeService, compute_service.ComputeClient) == (ComputeService, ComputeClient)
