# SPDX-License-Identifier: Apache-2.0
"""Joining a world: who fits, who is missing, who dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from processes import Processes
from tests_support import run_world
from world import worker_env

from horovod.rendezvous.bootstrap import _misfit
from horovod.rendezvous.world import World, distinct


def card(rank, host="a", **more):
    facts = {"rank": rank, "size": 2, "host": host, "host_key": host, "address": "127.0.0.1"}
    facts.update({"version": "1", "process_sets": [], "link_security": "control"})
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
        (
            card(1, "b", link_security="encrypt"),
            ["rank 1 on b has HOROVOD_LINK_SECURITY=encrypt", "has control"],
        ),
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
path = {directory!r} + '/' + os.environ['HOROVOD_RANK']
with open(path + '.new', 'w') as file:
    file.write(repr((text, seconds, initialised)))
os.replace(path + '.new', path)  # the launcher may end this process at any time
"""


@pytest.mark.parametrize("size, hosts", [(3, "localhost:3"), (3, "localhost:2,127.0.0.1:1")])
@pytest.mark.parametrize("at", ["before", "_form", "_exchange_cards", "_all_linked"])
def test_a_rank_that_dies_during_init_is_named_by_all_others(at, size, hosts, tmp_path):
    here = os.path.dirname(os.path.abspath(__file__))
    script = SURVIVOR.format(path=[here], die=size - 1, at=at, directory=str(tmp_path))
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", str(size), "-H", hosts]
    done = subprocess.run(
        [*command, sys.executable, "-c", script],
        env=worker_env(),
        capture_output=True,
        text=True,
        timeout=180,
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


# ------------------------------------------------------------------------- nobody waits in vain

# Rank 1 does something before hvd.init(); all say how that ended. The time limit is long: an error that comes
# before it was not waited for.
TRIED = """
import resource, threading
rank = int(os.environ["HOROVOD_RANK"])
if rank == 1:
    {mischief}
attempt(hvd.init)
"""
PATIENT = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "600"}


def errors_of(mischief, n=3, hosts=None):
    """What every rank's hvd.init() raised."""
    with Processes(TRIED.format(mischief=mischief), n, env=PATIENT, hosts=hosts) as ranks:
        heard = [ranks.heard(rank) for rank in range(n)]
        ranks.finish()
    return [(one["error"], one["text"]) for one in heard]


def test_a_wrong_setting_on_one_rank_is_named_by_all_at_once():
    errors = errors_of("os.environ['HOROVOD_GLOO_TIMEOUT_SECONDS'] = '60s'")
    assert errors[1][0] == "ValueError"
    assert errors[1][1] == "HOROVOD_GLOO_TIMEOUT_SECONDS=60s is not a whole number >= 0, e.g. 30"
    for kind, text in (errors[0], errors[2]):
        assert kind == "HorovodInternalError"
        assert "rank 1 on localhost gave up during init: ValueError" in text and "60s" in text


def test_a_wrong_argument_on_one_rank_is_named_by_all_at_once():
    errors = errors_of(
        "broken = hvd.ProcessSet([0]); broken.ranks = None; init = hvd.init; "
        "hvd.init = lambda: init(process_sets=[broken])"
    )
    assert errors[1][0] == "ValueError"
    assert "rank 1 on localhost gave up during init: ValueError" in errors[0][1] and errors[0] == errors[2]


def test_an_address_that_cannot_be_bound_is_named_by_all_at_once():
    errors = errors_of(
        "from horovod.rendezvous import bootstrap; bootstrap._my_address = lambda store: '203.0.113.7'"
    )
    for kind, text in errors:
        assert kind == "HorovodInternalError"
        assert "rank 1 on localhost could not start: cannot listen on 203.0.113.7" in text


def test_an_interface_that_is_not_there_is_named_by_all_at_once():
    for kind, text in errors_of("os.environ['HOROVOD_GLOO_IFACE'] = 'nope0'"):
        assert kind == "HorovodInternalError"
        assert "rank 1 on localhost could not start: HOROVOD_GLOO_IFACE=nope0: " in text


def test_a_congestion_control_that_is_not_there_is_named_by_all_at_once():
    for kind, text in errors_of("os.environ['HOROVOD_TCP_CONGESTION'] = 'nope'"):
        assert kind == "HorovodInternalError"
        assert "rank 1 on localhost could not start: HOROVOD_TCP_CONGESTION=nope: " in text
        assert "this kernel has" in text and "reno" in text


ONE, TWO = None, ["localhost", "127.0.0.1", "127.0.0.1"]
LIMIT = """
    used = len(os.listdir("/proc/self/fd")) - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + {room}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
"""


@pytest.mark.parametrize(
    "room, hosts", [(3, ONE), (7, ONE), (9, ONE), (2, TWO), (4, TWO), (5, TWO), (6, TWO), (7, TWO)]
)
def test_out_of_descriptors_blames_the_rank_that_is(room, hosts):
    """Wherever it happens: dialling the store, its own listener, a peer's connection, the shared memory."""
    for kind, text in errors_of(LIMIT.format(room=room).strip(), hosts=hosts):
        assert kind == "HorovodInternalError"
        assert "rank 1 on " in text, text
        assert "descriptor" in text or "open files" in text, text


FORKED = """
rank = int(os.environ["HOROVOD_RANK"])
if rank == 1:
    from horovod.rendezvous import bootstrap
    original = bootstrap._all_linked

    def fork_and_die(*args):
        import threading

        def fork():
            child = os.fork()
            if child == 0:
                os.close(1), os.close(2)
                time.sleep(600)
            say(child)

        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        os.kill(os.getpid(), signal.SIGKILL)

    bootstrap._all_linked = fork_and_die
attempt(hvd.init)
"""


def test_a_child_forked_by_another_thread_during_init_does_not_hide_its_parents_death():
    """The child outlives rank 1; it must not hold rank 1's sockets open."""
    with Processes(FORKED, 3, env=PATIENT, hosts=["localhost", "127.0.0.1", "127.0.0.1"]) as ranks:
        child = ranks.heard(1)
        try:
            for rank in (0, 2):
                heard = ranks.heard(rank)
                assert heard["error"] == "HorovodInternalError"
                assert "rank 1 on 127.0.0.1 disappeared while the job was starting" in heard["text"]
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_rank_that_ends_well_without_joining_is_named_at_once(tmp_path):
    """Its exit code is 0, so nothing ends the job; only the launcher knows that it will never come."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys\n"
        "if os.environ['HOROVOD_RANK'] == '1': sys.exit(0)\n"
        "import horovod.numpy as hvd\n"
        "hvd.init()\n"
    )
    command = [sys.executable, "-m", "horovod.runner.launch", "-np", "2", sys.executable, str(script)]
    done = subprocess.run(command, env=worker_env(PATIENT), capture_output=True, text=True, timeout=180)
    assert done.returncode != 0
    assert "rank 1 on localhost ended with exit code 0 before it joined" in done.stderr


def in_and_out():
    """Nothing but joining and leaving: a fast rank is back before a slow one knows that all are there."""
    import horovod.numpy as hvd

    for _ in range(15):
        hvd.init()
        hvd.shutdown()
    hvd.init()
    return float(hvd.allreduce(1.0, op=hvd.Sum))


def test_ranks_may_join_and_leave_at_once_any_number_of_times():
    assert run_world(in_and_out, 3, hosts="localhost:2,127.0.0.1:1") == [3.0] * 3


def broken_then_well():
    """The first init fails on one rank; all try again."""
    import horovod.numpy as hvd

    said = []
    if os.environ["HOROVOD_RANK"] == "1":
        os.environ["HOROVOD_SPIN_US"] = "quick"
    try:
        hvd.init()
    except (ValueError, hvd.HorovodInternalError) as error:
        said.append(str(error))
    os.environ.pop("HOROVOD_SPIN_US", None)
    hvd.init()
    return said, float(hvd.allreduce(1.0, op=hvd.Sum))


def test_after_a_failed_init_all_can_try_again():
    results = run_world(broken_then_well, 3)
    assert [total for _, total in results] == [3.0] * 3
    assert len(results[1][0]) == 1
    for said, _ in results:  # who comes when rank 1 tries again already need not hear of the first time
        assert all("HOROVOD_SPIN_US=quick is not a number" in text for text in said)
