# SPDX-License-Identifier: Apache-2.0
"""Joining a world: who fits, who is missing, who dies."""

from __future__ import annotations

import os
import signal
import time

import pytest
from tests_support import run_world

from horovod.rendezvous.bootstrap import _misfit
from horovod.rendezvous.world import World, distinct


def card(rank, host="a", **more):
    facts = {"rank": rank, "size": 2, "host": host, "host_key": host, "address": "127.0.0.1"}
    facts.update({"version": "1", "process_sets": []})
    facts.update(more)
    return facts


def test_hosts_are_numbered_by_their_first_rank():
    table = [card(r, host) for r, host in enumerate("babca")]
    place = World(3, table, b"", 1)
    assert place.host_of_rank == [0, 1, 0, 2, 1]
    assert place.host_names == ["b", "a", "c"] and place.n_hosts == 3
    assert place.local_ranks == [3]
    assert World(2, table, b"", 1).local_ranks == [0, 2]
    assert place.describe(4) == "rank 4 on a"


def test_machines_of_one_name_are_told_apart():
    assert distinct(["a", "b", "a", "a"]) == ["a", "b", "a#2", "a#3"]


@pytest.mark.parametrize(
    "other, words",
    [
        (card(1), []),
        (card(1, "b", version="2"), ["rank 1 on b runs Horovod 2", "rank 0 on a runs 1"]),
        (card(1, "b", size=3), ["rank 1 on b believes in 3 ranks", "in 2"]),
        (card(1, "b", process_sets=[[0]]), ["mismatching process sets", "rank 1 on b passed [[0]]"]),
    ],
)
def test_cards_that_do_not_fit_are_named(other, words):
    text = _misfit([card(0), other])
    assert bool(text) == bool(words)
    for word in words:
        assert word in text


def run_init(die_rank=None, at="", version_of=None):
    """Calls hvd.init() and reports the error and how long it took; one rank may die on its way."""
    import horovod.numpy as hvd
    from horovod.rendezvous import bootstrap

    rank = int(os.environ["HOROVOD_RANK"])
    if rank == version_of:
        bootstrap.__version__ = "0.0.0"
    if rank == die_rank:
        if at == "before":
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
        original = getattr(bootstrap, at)

        def dies(*args, **kwargs):
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        setattr(bootstrap, at, dies)
    start = time.monotonic()
    try:
        hvd.init()
    except hvd.HorovodInternalError as error:
        return str(error), time.monotonic() - start, hvd.is_initialized()
    return "no error", 0, True


def test_another_version_is_refused_on_all_ranks():
    for text, _, initialised in run_world(run_init, 2, args=(None, "", 1)):
        assert "rank 1 on localhost runs Horovod 0.0.0 but rank 0 on localhost runs" in text
        assert not initialised


SURVIVOR = """
import os, sys, time
sys.path[:0] = {path!r}
from test_bootstrap import run_init
import horovod.numpy as hvd
text, seconds, initialised = run_init({die}, {at!r})
with open({directory!r} + '/' + os.environ['HOROVOD_RANK'], 'w') as file:
    file.write(repr((text, seconds, initialised)))
"""


@pytest.mark.parametrize("size, hosts", [(3, "localhost:3"), (3, "localhost:2,127.0.0.1:1")])
@pytest.mark.parametrize("at", ["before", "_form", "_exchange_cards", "_all_linked"])
def test_a_rank_that_dies_during_init_is_named_by_all_others(at, size, hosts, tmp_path):
    import subprocess
    import sys

    from world import worker_env

    here = os.path.dirname(os.path.abspath(__file__))
    script = SURVIVOR.format(path=[here], die=size - 1, at=at, directory=str(tmp_path))
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(size), "-H", hosts]
    done = subprocess.run(
        [*command, sys.executable, "-c", script], env=worker_env(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    host = hosts.split(",")[-1].split(":")[0]
    for rank in range(size - 1):
        left = tmp_path / str(rank)
        if left.exists():  # the launcher may have ended this rank first: also an error, and named below
            text, _, initialised = eval(left.read_text())
            assert f"rank {size - 1}" in text and host in text, text
            assert not initialised
    assert f"Process name: {size - 1}" in done.stdout + done.stderr


def subworld():
    import horovod.numpy as hvd

    rank = int(os.environ["HOROVOD_RANK"])
    hvd.init(comm=[0, 2] if rank != 1 else [1])
    return hvd.rank(), hvd.size(), float(hvd.allreduce(float(rank), op=hvd.Sum))


def test_a_list_of_ranks_makes_a_smaller_world():
    assert run_world(subworld, 3) == [(0, 2, 2.0), (0, 1, 1.0), (1, 2, 2.0)]
