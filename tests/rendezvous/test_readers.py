# SPDX-License-Identifier: Apache-2.0
"""Launchers are recognised by their variables, in the right order."""

from __future__ import annotations

import os
import stat

import pytest
from ports import free_port

from horovod.rendezvous import auth, offers, over_file
from horovod.rendezvous import identity as identity_module
from horovod.rendezvous.detection import detect
from horovod.rendezvous.errors import StoreError, StoreTimeout
from horovod.rendezvous.generations import UNKNOWN, Seat
from horovod.rendezvous.identity import Identity, alone, subset
from horovod.rendezvous.readers.own import encode_secret

SECRET = encode_secret(auth.make_secret())
OWN = {
    "HOROVOD_RANK": "1", "HOROVOD_SIZE": "4", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "2", "HOROVOD_HOSTNAME": "node7",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT": "4000",
    "_HOROVOD_SECRET_KEY": SECRET,
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}  # fmt: skip
HYDRA = {"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "3"}
SLURM = {
    "SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "3", "SLURMD_NODENAME": "n3",
}  # fmt: skip
TORCHRUN = {
    "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip
JSRUN = {
    "JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "4", "JSM_NAMESPACE_LOCAL_RANK": "1",
    "JSM_NAMESPACE_LOCAL_SIZE": "2", "LSB_JOBID": "7",
}  # fmt: skip
PLAIN = {
    "HOROVOD_SIZE": "4", "JOB_COMPLETION_INDEX": "2", "HOROVOD_MASTER_ADDR": "train-0.train",
    "HOROVOD_MASTER_PORT": "29400", "_HOROVOD_SECRET_KEY": SECRET,
}  # fmt: skip

GRID = [
    (OWN, "horovodrun", 1, 4, 1, 2),
    (OPEN_MPI, "Open MPI's mpirun", 3, 8, 1, 2),
    (HYDRA, "MPICH's or Intel MPI's mpirun", 2, 3, 2, 3),
    (SLURM, "srun", 5, 6, 1, UNKNOWN),
    (TORCHRUN, "torchrun", 1, 2, 1, 2),
    (JSRUN, "jsrun", 1, 4, 1, 2),
    (PLAIN, "plain variables", 2, 4, UNKNOWN, UNKNOWN),
    ({**SLURM, **OWN}, "horovodrun", 1, 4, 1, 2),
    ({**SLURM, **OPEN_MPI}, "Open MPI's mpirun", 3, 8, 1, 2),
    ({**SLURM, **HYDRA}, "MPICH's or Intel MPI's mpirun", 2, 3, 2, 3),
    ({**SLURM, "PMI_RANK": "5", "PMI_SIZE": "6"}, "srun", 5, 6, 1, UNKNOWN),
    ({**SLURM, **TORCHRUN}, "torchrun", 1, 2, 1, 2),
    ({**OPEN_MPI, **JSRUN}, "jsrun", 1, 4, 1, 2),
]


@pytest.mark.parametrize("env, launcher, rank, size, local_rank, local_size", GRID)
def test_launchers_are_recognised(env, launcher, rank, size, local_rank, local_size):
    me = detect(env)
    assert (me.launcher, me.rank, me.size, me.local_rank, me.local_size) == (
        launcher,
        rank,
        size,
        local_rank,
        local_size,
    )
    assert me.meet is not None and me.found_by


NOBODY = [
    {},
    {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"},  # ranks without a place to meet make no job
    {"RANK": "1", "WORLD_SIZE": "1", "MASTER_ADDR": "x"},  # somebody else's variables
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "1"},  # a batch script, not a step
    {"JOB_COMPLETION_INDEX": "1"},
]


@pytest.mark.parametrize("env", NOBODY)
def test_without_a_launcher_a_process_is_alone(env):
    me = detect(env)
    assert (me.rank, me.size, me.local_rank, me.local_size, me.cross_rank, me.cross_size) == (
        0,
        1,
        0,
        1,
        0,
        1,
    )
    with pytest.raises(StoreError, match="no store"):
        me.open_store()


@pytest.mark.parametrize("env", [OWN, PLAIN], ids=["own", "plain"])
def test_half_a_set_of_variables_is_named(env):
    for name in env:
        if (
            name in ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_MASTER_ADDR")
            or "LOCAL" in name
            or "CROSS" in name
        ):
            continue
        if name == "HOROVOD_HOSTNAME":
            continue
        with pytest.raises(RuntimeError, match=f"{name}"):
            detect({key: value for key, value in env.items() if key != name})


def test_ranks_of_a_launcher_we_do_not_know_are_warned_of():
    """Ray's TorchTrainer sets these; N silent worlds of one would each train on their own."""
    with pytest.warns(RuntimeWarning, match="RANK=1 and WORLD_SIZE=2 are set, but by no launcher"):
        assert detect({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "x"}).size == 1


def test_a_number_that_is_none_is_named():
    with pytest.raises(RuntimeError, match="HOROVOD_GLOO_RENDEZVOUS_PORT=http is not a whole number"):
        detect({**OWN, "HOROVOD_GLOO_RENDEZVOUS_PORT": "http"})


def test_an_elastic_worker_is_known_by_its_id_and_gets_its_numbers_with_its_seat():
    env = {**OWN, "HOROVOD_WORKER_ID": "node7[1]", "HOROVOD_HOST_KEY": "5eca84e2"}
    for name in ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"):
        del env[name]
    me = detect(env)
    assert (me.rank, me.size, me.worker, str(me)) == (
        UNKNOWN,
        UNKNOWN,
        "node7[1]",
        "worker node7[1] on node7",
    )
    assert me.claim().worker == "node7[1]" and me.host_key == "5eca84e2" and me.host == "node7"
    now = me.seated(Seat(2, 5, local_rank=1, local_size=2, generation=7))
    assert (now.rank, now.size, now.local_rank, now.generation, now.cross_size) == (2, 5, 1, 7, 2)
    assert str(now) == "rank 2 on node7"
    with pytest.raises(ValueError, match="ranks of an elastic job are not known"):
        subset(me, [0, 1])


def test_impossible_numbers_are_refused():
    with pytest.raises(ValueError, match="says this is rank 8 of 8, which cannot be"):
        detect({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "8"})


def test_one_rank_needs_no_meeting():
    assert detect({**OPEN_MPI, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}).meet is None


def test_subsets():
    me = detect(OWN)
    part = subset(me, [3, 1])
    assert (part.rank, part.size, part.group) == (1, 2, (3, 1)) and part.meet is not None
    assert subset(me, [0, 1, 2, 3]) is me
    assert subset(me, [1]).size == 1
    with pytest.raises(ValueError, match="rank 1, which is not in the list"):
        subset(me, [0, 2])
    for wrong in ([1, 1], [1, 4], [-1, 1]):
        with pytest.raises(ValueError, match="must be different and below 4"):
            subset(me, wrong)


def test_torchrun_without_its_store_says_what_to_do():
    me = detect({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "False"})
    with pytest.raises(StoreError, match="TORCH_DISABLE_SHARE_RDZV_TCP_STORE"):
        me.open_store(1)


def ranks(size, meet):
    return [Identity(rank, size, f"h{rank}", "test", meet=meet) for rank in range(size)]


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """A folder to meet in, and a process that has not met anybody yet."""
    monkeypatch.setenv(over_file.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(offers, "_offers", {})
    servers = {}
    monkeypatch.setattr(offers, "_servers", servers)
    yield tmp_path
    for server in servers.values():
        server.close()


def test_meeting_by_file(fresh, monkeypatch):
    zero, one = ranks(2, over_file.meet_by_file("job-1", True))
    with zero.open_store(60) as a:
        (path,) = fresh.iterdir()
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        monkeypatch.setattr(offers, "_offers", {})  # the other rank is another process
        with one.open_store(60) as b:
            a.set("x", b"1")
            assert b.get("x") == b"1"


def test_the_file_with_the_secret_is_gone_as_soon_as_all_have_read_it(fresh, monkeypatch):
    """Then nothing is left of it if rank 0 is killed, which no handler of its could see."""
    zero, one = ranks(2, over_file.meet_by_file("job-1", True))
    with zero.open_store(60) as a:
        a.join(zero.claim())
        assert [path.name for path in fresh.iterdir()] == ["job-1"]
        monkeypatch.setattr(offers, "_offers", {})
        with one.open_store(60) as b:
            b.join(one.claim())
            assert list(fresh.iterdir()) == []


def test_parts_of_a_job_meet_at_places_of_their_own(fresh, monkeypatch):
    """hvd.init(comm=[1, 2]) needs nothing of rank 0, which serves the whole job's store."""
    job = ranks(3, over_file.meet_by_file("job-1", True))
    one, two = (subset(job[rank], [1, 2]) for rank in (1, 2))
    with one.open_store(60) as a:
        a.join(one.claim())
        monkeypatch.setattr(offers, "_offers", {})
        with two.open_store(60) as b:
            assert (b.join(two.claim()).rank, b.join(two.claim()).size) == (1, 2)


def test_a_stale_file_is_not_believed(fresh, monkeypatch):
    zero, one = ranks(2, over_file.meet_by_file("job-1", True))
    zero.open_store(60).close()
    offers._servers["job-1"].close()
    monkeypatch.setattr(offers, "_offers", {})
    with pytest.raises(StoreTimeout, match="could not be reached"):
        one.open_store(0.5)


def test_a_missing_rank_0_is_named(fresh):
    with pytest.raises(StoreTimeout, match="waited 0.2 s for rank 0 .* HOROVOD_RENDEZVOUS_DIR"):
        ranks(2, over_file.meet_by_file("job-1", True))[1].open_store(0.2)


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_file_others_could_read_is_refused(fresh, mode):
    path = fresh / "job-1"
    path.write_bytes(b"{}")
    path.chmod(mode)
    with pytest.raises(StoreError, match="not this user's private file"):
        ranks(2, over_file.meet_by_file("job-1", True))[1].open_store(0.2)


def test_plain_variables_meet(fresh, monkeypatch):
    port = str(free_port())
    env = {**PLAIN, "HOROVOD_MASTER_ADDR": "127.0.0.1", "HOROVOD_MASTER_PORT": port, "HOROVOD_SIZE": "2"}
    zero, one = (detect({**env, "JOB_COMPLETION_INDEX": str(rank)}) for rank in range(2))
    with zero.open_store(60) as a:
        monkeypatch.setattr(offers, "_offers", {})
        with one.open_store(60) as b:
            b.set("x", b"1")
            assert a.get("x") == b"1"


def test_alone_names_this_host(monkeypatch):
    monkeypatch.setenv("HOROVOD_HOSTNAME", "me")
    assert alone().host == "me" and identity_module.host_name() == "me"
