# SPDX-License-Identifier: Apache-2.0
"""How connections between ranks find their speed."""

from __future__ import annotations

import socket
import time

import pytest

from horovod.rendezvous import congestion


def may_use(name):
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name)
        except OSError:
            return False
        return True


@pytest.fixture
def connection():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as near:
            far, _ = listener.accept()
            with far:
                yield near


@pytest.mark.parametrize(
    "current, round_trip_us, better",
    [
        ("bbr", 50, "reno"),
        ("bbr3", 999, "reno"),
        ("bbr", 1000, None),  # another data centre
        ("bbr", None, None),
        ("cubic", 50, None),
        ("dctcp", 50, None),
        ("reno", 50, None),
    ],
)
def test_only_who_is_paced_on_a_short_way_changes(current, round_trip_us, better):
    assert congestion.better_than(current, round_trip_us) == better


def test_the_round_trip_is_that_of_the_connection(connection):
    start = time.perf_counter()
    while congestion.round_trip_us(connection) is None and time.perf_counter() - start < 10:
        connection.send(b"x")
    assert 0 < congestion.round_trip_us(connection) < 1e6


def test_sockets_without_round_trips():
    one, other = socket.socketpair()
    with one, other:
        assert congestion.round_trip_us(one) is None
        congestion.choose_congestion_control(one)


@pytest.mark.skipif(not may_use(b"bbr"), reason="bbr cannot be had here")
@pytest.mark.parametrize(
    "setting, round_trip_us, used",
    [
        ("auto", 50, "reno"),
        ("auto", 30_000, "bbr"),
        ("auto", None, "bbr"),
        ("system", 50, "bbr"),
        ("reno", 30_000, "reno"),
    ],
)
def test_a_paced_connection(connection, monkeypatch, setting, round_trip_us, used):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
    monkeypatch.setenv("HOROVOD_TCP_CONGESTION", setting)
    monkeypatch.setattr(congestion, "round_trip_us", lambda sock: round_trip_us)
    congestion.choose_congestion_control(connection)
    assert congestion.congestion_control(connection) == used


def test_what_a_kernel_may_not_change_stays_as_it_is(connection, monkeypatch):
    monkeypatch.setenv("HOROVOD_TCP_CONGESTION", "auto")
    monkeypatch.setattr(congestion, "better_than", lambda current, round_trip: "nope")
    before = congestion.congestion_control(connection)
    congestion.choose_congestion_control(connection)
    assert congestion.congestion_control(connection) == before


def test_a_kernel_that_does_not_say_what_it_uses_is_left_alone(connection, monkeypatch):
    monkeypatch.setenv("HOROVOD_TCP_CONGESTION", "auto")
    asked = []

    def unknown(sock):
        asked.append(sock)
        raise OSError("Protocol not available")

    monkeypatch.setattr(congestion, "congestion_control", unknown)
    congestion.choose_congestion_control(connection)
    assert asked == [connection]


def test_what_was_asked_for_in_vain_is_named(connection, monkeypatch):
    monkeypatch.setenv("HOROVOD_TCP_CONGESTION", "nope")
    with pytest.raises(RuntimeError, match=r"HOROVOD_TCP_CONGESTION=nope: .*; this kernel has .*reno"):
        congestion.choose_congestion_control(connection)
