# SPDX-License-Identifier: Apache-2.0
"""Every port a job listens on, as a stranger on the network sees it: few, on chosen addresses, and deaf."""

from __future__ import annotations

import os
import random
import socket
import sys
import threading
import time

from launching import REPORT, descendants, listening, reports, start_horovodrun
from waiting import until

from horovod.rendezvous import auth

TWO_HOSTS = ["-np", "4", "-H", "localhost:2,127.0.0.1:2"]


def disturb(port: int, random_source: random.Random) -> None:
    """One visit of a stranger: a scan, noise, HTTP, or somebody who knows the protocol but no secret."""
    visits = [
        b"",
        b"\0",
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(random_source.randrange(1, 5000)),
        auth.hello() + os.urandom(32),
        auth.hello()[: random_source.randrange(40)],
    ]
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
            sock.sendall(random_source.choice(visits))
            if random_source.random() < 0.5:
                sock.settimeout(0.05)
                sock.recv(100)
    except OSError:
        pass


def test_strangers_on_all_ports_while_ranks_find_each_other():
    """Four rounds of hvd.init() on two hosts, with strangers knocking on every port that opens meanwhile.

    Ports are open for a moment only: again, if the strangers came to too few.
    """
    seen = {}
    for _ in range(5):
        disturb_a_job(seen)
        if len(seen) > 4:
            break
    assert len(seen) > 4, "the store and the ranks' own ports were to be visited"
    assert set(seen.values()) == {"127.0.0.1"}, "a job on one machine has nothing to say to the network"


def disturb_a_job(seen):
    job = start_horovodrun(*TWO_HOSTS, sys.executable, REPORT, "--rounds", "4")
    stop = threading.Event()

    def strangers():
        source = random.Random(7)
        while not stop.is_set():
            ports = listening(descendants(job.pid))
            seen.update(ports)
            for port in ports:
                disturb(port, source)
            time.sleep(0.01)

    thread = threading.Thread(target=strangers)
    thread.start()
    out, errors = job.communicate(timeout=120)
    stop.set()
    thread.join()
    assert job.returncode == 0, errors
    assert [(r["round"], r["rank"]) for r in reports(out)] == [(n, r) for n in range(4) for r in range(4)]


def test_a_running_job_listens_on_the_store_only():
    job = start_horovodrun(*TWO_HOSTS, sys.executable, REPORT, "--sleep", "1000")
    try:
        for _ in range(4):
            assert '"rank"' in job.stdout.readline()
        workers = [pid for pid in descendants(job.pid) if pid != job.pid]
        assert len(workers) >= 4
        until(lambda: listening(workers) == {}, "the ranks have closed the ports where they met")
        assert len(listening([job.pid])) == 1
    finally:
        job.terminate()
        job.communicate(timeout=60)
