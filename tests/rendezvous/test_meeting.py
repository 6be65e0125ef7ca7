# SPDX-License-Identifier: Apache-2.0
"""Ranks meet, and meet again: in every way of meeting, in parts and as a whole, survivors and newcomers."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading

import pytest
from launching import ROOT
from mpi_environments import NAMES, MpiEnvironment
from ports import free_port
from world import worker_env

from horovod.rendezvous import auth
from horovod.rendezvous.generations import Seat
from horovod.rendezvous.readers.own import encode_secret
from horovod.rendezvous.store_server import Event, StoreServer

AS_HOST = os.path.join(ROOT, "tests", "runner", "scripts", "as_host.sh")
SAY = """
import json, os, sys
import numpy as np
import horovod.numpy as hvd
from horovod.common import topology

def say(*values):
    os.write(1, (json.dumps(values) + "\\n").encode())

def meet(comm=None):
    hvd.init(comm)
    say(hvd.rank(), hvd.size(), float(hvd.allreduce(np.ones(1), op=hvd.Sum)[0]), topology.world().generation)
    hvd.barrier()
    hvd.shutdown()
"""
# Rank 2 stays away while 0 and 1 form a world; then all meet; then 1 and 2 without rank 0; then all again.
PARTS = (
    SAY
    + """
from horovod.rendezvous.detection import detect
me = detect().rank
if me in (0, 1):
    meet([0, 1])
meet()
if me in (1, 2) and "with rank 0" not in sys.argv:
    meet([2, 1])
meet()
"""
)


# The same where a launcher mixes what its ranks print.
TO_FILES = PARTS.replace("os.write(1, (", "open(f'{sys.argv[1]}.{me}', 'ab', 0).write((")


def from_files(folder):
    lines = [(folder / f"said.{rank}").read_text().splitlines() for rank in range(3)]
    return [[json.loads(line) for line in rank] for rank in lines]


class Ranks:
    """Bare processes running a script, each with variables of its own."""

    def __init__(self, script, environments, arguments=()):
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", script, *arguments], env=env, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.PIPE,
            )
            for env in environments
        ]  # fmt: skip

    def finish(self):
        """What each said, in order, once all have ended."""
        said = []
        for process in self.processes:
            out, errors = process.communicate(timeout=180)
            assert process.returncode == 0, errors
            said.append([json.loads(line) for line in out.splitlines()])
        return said

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for process in self.processes:
            process.kill()
            process.communicate()


def launchers_store(tmp_path, size):
    secret = auth.make_secret()
    store = StoreServer(secret, size=size)
    shared = {
        "HOROVOD_SIZE": str(size), "HOROVOD_GLOO_RENDEZVOUS_ADDR": store.address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(store.port), "_HOROVOD_SECRET_KEY": encode_secret(secret),
    }  # fmt: skip
    return [{**shared, "HOROVOD_RANK": str(rank)} for rank in range(size)], store.close


def by_file(tmp_path, size):
    shared = {"JSM_NAMESPACE_SIZE": str(size), "JSM_NAMESPACE_LOCAL_SIZE": str(size), "LSB_JOBID": "7"}
    shared["HOROVOD_RENDEZVOUS_DIR"] = str(tmp_path)
    ranks = [
        {**shared, "JSM_NAMESPACE_RANK": str(r), "JSM_NAMESPACE_LOCAL_RANK": str(r)} for r in range(size)
    ]
    return ranks, lambda: None


def plain_variables(tmp_path, size):
    shared = {
        "HOROVOD_SIZE": str(size), "HOROVOD_MASTER_ADDR": "127.0.0.1",
        "HOROVOD_MASTER_PORT": str(free_port()), "_HOROVOD_SECRET_KEY": encode_secret(auth.make_secret()),
    }  # fmt: skip
    return [{**shared, "JOB_COMPLETION_INDEX": str(rank)} for rank in range(size)], lambda: None


@pytest.mark.parametrize("way", [launchers_store, by_file, plain_variables])
def test_parts_of_a_job_meet_and_then_all_of_it(way, tmp_path):
    ranks, close = way(tmp_path, 3)
    arguments = ["with rank 0"] if way is plain_variables else []
    with Ranks(PARTS, [worker_env(env) for env in ranks], arguments) as job:
        said = job.finish()
    close()
    check_parts(said, with_rank_0=bool(arguments))
    assert list(tmp_path.iterdir()) == [], "no file with a secret is left"


def check_parts(said, with_rank_0=False):
    numbers = [[tuple(one[:3]) for one in rank] for rank in said]
    one, two, three = (0, 2, 2.0), (1, 2, 2.0), (0, 3, 3.0)
    expected = [[one, three, three], [two, (1, 3, 3.0), (1, 3, 3.0)], [(2, 3, 3.0), (2, 3, 3.0)]]
    if not with_rank_0:
        expected[1].insert(2, (1, 2, 2.0))
        expected[2].insert(1, (0, 2, 2.0))
    assert numbers == expected
    assert len({tuple(rank[-1])[3] for rank in said}) == 1, "all know the same generation"


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_parts_of_a_torchrun_job_meet_and_then_all_of_it(tmp_path):
    script = tmp_path / "parts.py"
    script.write_text(TO_FILES)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3"]
    done = subprocess.run(
        [*command, str(script), str(tmp_path / "said")], env=worker_env(), capture_output=True, text=True,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    check_parts(from_files(tmp_path))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("operations", ["gloo", "mpi"])
def test_parts_of_an_mpi_job_meet_and_then_all_of_it(name, operations, tmp_path):
    """Though MPI's own collectives wait for everybody: a part makes a communicator without the others."""
    mpi = MpiEnvironment(name)
    reason = mpi.prepare()
    if reason is not None:
        pytest.skip(reason)
    script = tmp_path / "parts.py"
    script.write_text(TO_FILES)
    command = [AS_HOST, mpi.python, str(script), str(tmp_path / "said")]
    done = mpi.run(3, command, HOROVOD_CPU_OPERATIONS=operations)
    assert done.returncode == 0, done.stderr
    check_parts(from_files(tmp_path))


def test_plain_variables_cannot_bring_ranks_together_without_rank_0():
    ranks, _ = plain_variables(None, 3)
    script = SAY + "try: meet([1, 2])\nexcept hvd.HorovodInternalError as error: say(str(error))"
    with Ranks(script, [worker_env(env) for env in ranks[1:]]) as job:
        for ((text,),) in job.finish():
            assert "HOROVOD_MASTER_ADDR names rank 0, so ranks can meet only in worlds" in text


# --------------------------------------------------------------------------- survivors and newcomers

# Told over standard input which variables to take; joins, reduces, may die, and says what happened.
WORKER = (
    SAY
    + """
for line in sys.stdin:
    values = json.loads(line)
    os.environ.update(values["env"])
    try:
        hvd.init()
        say("joined", hvd.rank(), hvd.size(), float(hvd.allreduce(np.ones(1), op=hvd.Sum)[0]),
            topology.world().generation)
        if "HOROVOD_WORKER_ID" in os.environ:  # the driver gives out numbers with each world
            assert os.environ["HOROVOD_RANK"] == str(hvd.rank()), os.environ["HOROVOD_RANK"]
            assert os.environ["HOROVOD_LOCAL_SIZE"] == str(hvd.local_size())
        if values.get("die"):
            sys.stdin.readline()  # until the others have their results too
            os._exit(9)
        while not values.get("leave"):
            hvd.allreduce(np.ones(1), name="next")
        hvd.barrier()
    except hvd.HorovodInternalError as error:
        say("failed", str(error))
    hvd.shutdown()
"""
)


class Worker:
    """A process that joins one world after another."""

    def __init__(self, env=None):
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER], env=worker_env(env), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))

    def tell(self, env, **more):
        self.process.stdin.write(json.dumps({"env": env, **more}) + "\n")
        self.process.stdin.flush()

    def die(self):
        """For one that was told to: now."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def heard(self):
        return self.lines.get(timeout=60)


@pytest.fixture
def workers():
    made = []

    def make(**env):
        made.append(Worker(env))
        return made[-1]

    yield make
    for worker in made:
        worker.process.kill()
        worker.process.communicate()


def test_survivors_of_a_lost_rank_and_a_fresh_process_meet_in_a_new_store(workers):
    """Reused processes, as Spark's Python workers are, and a fresh one: nobody counts anybody's inits."""
    world = [workers(), workers(), workers()]
    ranks, close = launchers_store(None, 3)
    for rank, worker in enumerate(world):
        worker.tell(ranks[rank], die=rank == 2)
    assert [worker.heard() for worker in world] == [["joined", rank, 3, 3.0, 1] for rank in range(3)]
    world[2].die()
    for worker in world[:2]:
        kind, text = worker.heard()
        assert kind == "failed" and "rank 2" in text
    close()
    for newcomers in ([], [workers()]):
        world = world[:2] + newcomers
        size = len(world)
        ranks, close = launchers_store(None, size)
        for rank, worker in enumerate(world):
            worker.tell(ranks[rank], leave=True)
        said = [worker.heard() for worker in world]
        assert said == [["joined", rank, size, float(size), 1] for rank in range(size)]
        close()


def test_survivors_and_a_fresh_process_meet_in_the_same_store(workers):
    ranks, close = launchers_store(None, 3)
    world = [workers(), workers(), workers()]
    for generation in (1, 2, 3):
        for rank, worker in enumerate(world):
            worker.tell(ranks[rank], die=rank == 2)
        assert [worker.heard() for worker in world] == [
            ["joined", rank, 3, 3.0, generation] for rank in range(3)
        ]
        world[2].die()
        assert [worker.heard()[0] for worker in world[:2]] == ["failed", "failed"]
        world[2] = workers()
    close()


def test_a_driver_forms_the_world_anew_without_restarting_the_survivors(workers):
    """What an elastic driver does: assign, lose one, wait until the others ask, assign again."""
    secret = auth.make_secret()
    events = queue.Queue()
    with StoreServer(secret, on_event=events.put, driven=True) as store:
        shared = {
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": store.address, "HOROVOD_GLOO_RENDEZVOUS_PORT": str(store.port),
            "_HOROVOD_SECRET_KEY": encode_secret(secret),
        }  # fmt: skip

        def start(name):
            worker = workers(HOROVOD_HOSTNAME=name)
            worker.tell({**shared, "HOROVOD_WORKER_ID": name}, die=name == "c")
            return worker

        def seats(*names):
            return {name: Seat(rank, len(names)) for rank, name in enumerate(names)}

        world = {name: start(name) for name in "abc"}  # they wait: nobody has told them who they are
        assert {events.get(timeout=60) for _ in world} == {Event("waiting", 0, name) for name in world}
        store.assign(seats("a", "b", "c"))
        said = {name: worker.heard() for name, worker in world.items()}
        assert said == {name: ["joined", rank, 3, 3.0, 1] for rank, name in enumerate("abc")}
        world["c"].die()
        for name in "ab":
            assert world[name].heard()[0] == "failed"
            world[name].tell({})
        world["d"] = start("d")
        seen = set()
        while len(seen) < 3:
            event = events.get(timeout=60)
            seen |= {event.worker} if event.kind == "waiting" else set()
        assert store.assign(seats("b", "a", "d")) == 2
        said = {name: world[name].heard() for name in "bad"}
        assert said == {name: ["joined", rank, 3, 3.0, 2] for rank, name in enumerate("bad")}
        world["d"].process.send_signal(signal.SIGKILL)
        for name in "ba":
            assert world[name].heard()[0] == "failed"
            world[name].tell({})
        store.assign(seats("a"))  # a world of one is a world of the job's too
        assert world["a"].heard() == ["joined", 0, 1, 1.0, 3]
        store.dismiss("b", "b has been removed from elastic job")
        assert world["b"].heard() == ["failed", "b has been removed from elastic job"]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_an_initialised_process_group_of_pytorch_is_found(tmp_path):
    """Ray's TorchTrainer sets RANK and WORLD_SIZE, and initialises a process group, but is no torchrun."""
    script = (
        SAY
        + """
import torch.distributed as dist
for port in os.environ["PORTS"].split():  # a new one: the first store may not have gone yet
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo", init_method="env://")
    meet()
    meet()
    dist.destroy_process_group()
"""
    )
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "PORTS": f"{free_port()} {free_port()}"}
    ranks = [worker_env({**shared, "RANK": str(rank)}) for rank in range(2)]
    with Ranks(script, ranks) as job:
        said = job.finish()
    assert [[tuple(one[:3]) for one in rank] for rank in said] == [[(r, 2, 2.0)] * 4 for r in range(2)]


def test_ranks_share_memory_by_their_key_and_are_shown_by_their_name(workers):
    """A Ray node id tells hosts apart; people want to read a name."""
    ranks, close = launchers_store(None, 3)
    keys = ["5eca84e2", "5eca84e2", "77aa0011"]
    world = [workers(HOROVOD_HOSTNAME="node7", HOROVOD_HOST_KEY=key) for key in keys]
    for rank, worker in enumerate(world):
        worker.tell(ranks[rank], die=rank == 2)
    for rank, worker in enumerate(world):
        assert worker.heard() == ["joined", rank, 3, 3.0, 1]
    world[2].die()
    for worker in world[:2]:
        _, text = worker.heard()
        assert "rank 2 on node7#2" in text and "77aa0011" not in text
    close()
