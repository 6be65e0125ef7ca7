# SPDX-License-Identifier: Apache-2.0
"""The private socket of `horovodrun --stacks`, and what is printed."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from horovod.runner.watch import inquiry
from horovod.runner.watch.collector import Collector
from horovod.runner.watch.stacks import report


@pytest.fixture
def somebody(monkeypatch):
    """A user of whom there are no jobs; the folder of their sockets."""
    number = 3_000_000 + os.getpid()
    monkeypatch.setattr(os, "getuid", lambda: number)
    path = f"/tmp/horovod-{number}"
    yield path
    if os.path.isdir(path):
        os.rmdir(path)


def test_a_folder_of_somebody_else_is_not_used(somebody):
    said = []
    os.mkdir(somebody, 0o700)  # as an attacker would before: it is not owned by that user
    inquiry.StackServer(lambda: "secret", said.append).close()
    assert len(said) == 1 and "is not a directory that only you may enter" in said[0]
    assert os.listdir(somebody) == []
    with pytest.raises(ValueError, match="only you may enter"):
        inquiry.running()


def test_without_a_job_nothing_is_listed(somebody):
    assert inquiry.running() == {} and inquiry.ask("") == "No job of yours reports.\n"
    with pytest.raises(ValueError, match="no such job runs here"):
        inquiry.ask("1")  # runs, but is no horovodrun


def test_only_the_user_is_answered(monkeypatch):
    server = inquiry.StackServer(lambda: "the report", print)
    path = os.path.join(inquiry.folder(), f"{os.getpid()}.sock")
    try:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert _said(path) == b"the report"
        monkeypatch.setattr(inquiry, "_peer", lambda client: 12345)
        assert _said(path) == b""
    finally:
        server.close()
    assert not os.path.exists(path)


def _said(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(60)
        sock.connect(path)
        return sock.recv(100)


def test_what_is_left_of_a_killed_launcher_is_removed():
    nobody = 1_000_000_000 + os.getpid()  # others may run this test now
    path = os.path.join(inquiry.folder(make=True), f"{nobody}.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(path)
    assert nobody not in inquiry.running()
    assert not os.path.exists(path)


def test_the_report_says_what_each_rank_does_and_how_old_its_stack_is():
    collector = Collector("train.py", 0.0)
    for rank in range(3):
        collector.started(str(rank), "node7", rank)
    waits = {"state": "waiting", "name": "conv1", "kind": "ALLREDUCE", "since_s": 60.0, "missing": [1]}
    collector.reported("0", {"rank": 0, "pid": 10, "now": waits}, 98.8)
    collector.answered("0", "train.py, line 8, in step", 99.0)
    collector.reported("1", {"rank": 1, "pid": 11, "now": {"state": "idle"}, "stack": ["load.py:5"]}, 80.0)
    collector.ranks["1"].asked = True
    text = report(collector.view(100.0))
    first, second, third = text.split("---- ")[1:]
    assert first == (
        "rank 0 on node7 (process 10): waiting for rank 1 in ALLREDUCE conv1, for 61.2 s\n"
        "train.py, line 8, in step\n\n"
    )
    assert "It does not answer; 20 s ago it was here:\nload.py:5\n" in second
    assert third.startswith("rank 2 on node7: starting")
