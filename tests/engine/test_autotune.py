# SPDX-License-Identifier: Apache-2.0
"""Autotune in whole jobs: a bad start is found out, all ranks change together, what is set stays.

The search itself is tested on known landscapes in csrc/tests/control/tuner_test.cc.
"""

from __future__ import annotations

import csv
import re

import pytest
import yaml
from processes import Processes
from standin_gpu import standin_env
from tests_support import run_world

from horovod.common import config

HEADER = (
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score"
)


def train(steps, counts, until="", blocking=False):
    """Steps of gradients, in one call or one by one, until rank 0 sees a file. The results must be right."""
    import os

    import numpy as np

    import horovod.numpy as hvd

    gradients = [np.full(count, hvd.rank(), np.float32) for count in counts]
    mean = (hvd.size() - 1) / 2
    for step in range(steps):
        if blocking:
            for i, one in enumerate(gradients):
                hvd.allreduce_(one, op=hvd.Average, name=f"gradient{i}")
        else:
            hvd.grouped_allreduce_(gradients, op=hvd.Average, name="gradients")
        assert all(one[0] == one[-1] == mean for one in gradients), step
        if until and step % 10 == 9:
            there = np.float32(hvd.rank() == 0 and os.path.exists(until))
            if hvd.allreduce(there, op=hvd.Sum, name="there") > 0:
                break
    return step


def job(*args):
    import horovod.numpy as hvd

    hvd.init()
    done = train(*args)
    hvd.shutdown()
    return done


def rows(path):
    """The table of samples. Numbers of the documented columns may have a blank before them."""
    with open(path, newline="") as file:
        return [{key: value.strip() for key, value in row.items()} for row in csv.DictReader(file)]


def settings(log, output, **more):
    return {
        "HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_LOG": str(log), "HOROVOD_AUTOTUNE_OUTPUT": str(output),
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "4", **more,
    }  # fmt: skip


# Where the search starts, what that does, and gradients that suffer from it tenfold and more.
PLANTED = {
    "fusion_threshold=1": ("each of 500 tensors crosses the wire alone", [64] * 500, False),
    "chunk_bytes=4096": ("a tensor crosses the wire in 2,048 pieces", [1 << 21], False),
    "cycle_time=40": ("each of three tensors waits for 40 ms", [64] * 3, True),
}
COLUMNS = {"fusion_threshold": "tensor_fusion_threshold", "cycle_time": "cycle_time_ms"}


@pytest.mark.parametrize("start", PLANTED)
def test_a_planted_bad_setting_is_found(tmp_path, start):
    _, counts, blocking = PLANTED[start]
    log, output = tmp_path / "samples.csv", tmp_path / "tuned.yaml"
    env = settings(log, output, HOROVOD_AUTOTUNE_START=start, HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES="4")
    hosts = "localhost:1,127.0.0.1:1"
    steps = run_world(job, 2, env=env, args=(1000, counts, str(output), blocking), hosts=hosts)
    assert steps[0] < 999, "it did not stop"
    seen = rows(log)
    name, planted = start.split("=")
    column = COLUMNS.get(name, name)
    unit = 1 << 20 if name == "fusion_threshold" else 1
    assert log.read_text().startswith(HEADER + ",")
    assert float(seen[0][column]) * unit == float(planted)
    assert seen[-1]["phase"] == "best" and float(seen[-1][column]) * unit != float(planted), seen
    assert {row["phase"] for row in seen} == {"warmup", "search", "verify", "best"}

    # The file says the same, in a form that --config-file takes.
    found = config.env_of(config.flags_of_yaml(yaml.safe_load(output.read_text())))
    assert int(found["HOROVOD_FUSION_THRESHOLD"]) == float(seen[-1]["tensor_fusion_threshold"]) * (1 << 20)
    for column in ("chunk_bytes", "small_bytes", "spin_us", "gpu_direct_bytes"):
        assert float(found[f"HOROVOD_{column.upper()}"]) == float(seen[-1][column])


def train_on_gpu(steps, counts, until):
    """Steps of gradients on a stand-in GPU of each rank, which can go both ways. Returns how they went."""
    import os

    import numpy as np
    from standin_gpu import Gpu

    import horovod.numpy as hvd
    from horovod.common import constants, engine, gpu_report

    hvd.init()
    gpu = Gpu(hvd.rank())
    gradients = [(f"gradient{i}", gpu.allocate(n), n) for i, n in enumerate(counts)]
    for step in range(steps):
        requests = []
        for name, memory, n in gradients:
            gpu.fill(memory, hvd.rank() + step, n)
            requests.append(engine.request(constants.ALLREDUCE, name, constants.FLOAT32, (n,), memory, memory,
                                           device=gpu.device, stream=gpu.stream))  # fmt: skip
        handle = engine.submit(requests)
        engine.wait(handle)
        engine.release(handle)
        for _, memory, n in gradients:
            values = gpu.read(memory, n)
            assert values[0] == values[-1] == 2 * step + 1, step
        if step % 10 == 9:
            there = np.float32(hvd.rank() == 0 and os.path.exists(until))
            if hvd.allreduce(there, op=hvd.Sum, name="there") > 0:
                break
    found = gpu_report.read()["sets"][0]
    hvd.shutdown()
    return step, found["direct_batches"], found["nccl_batches"]


def test_a_bad_boundary_between_the_ways_of_gpus_is_found(tmp_path):
    """All over NCCL, which takes 50 ms here, longer than a busy machine, for what goes directly at once."""
    log, output = tmp_path / "samples.csv", tmp_path / "tuned.yaml"
    env = settings(log, output, HOROVOD_AUTOTUNE_START="gpu_direct_bytes=0",
                   HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES="4")  # fmt: skip
    found = run_world(train_on_gpu, 2, env={**env, **standin_env(), "STANDIN_NCCL_US": "50000"},
                      args=(1000, [3000, 500], str(output)))  # fmt: skip
    assert found[0] == found[1] and found[0][0] < 999, "it did not stop"
    assert found[0][1] > 0 and found[0][2] > 0, "it tried only one way"
    seen = rows(log)
    assert seen[0]["gpu_direct_bytes"] == "0"
    assert seen[-1]["phase"] == "best" and int(seen[-1]["gpu_direct_bytes"]) >= 14_000, seen


CHANGING = """
hvd.init()
for step in range(120):
    gradients = [np.ones(n, np.float32) for n in (70000, 3000, 10, 0)]
    for one in hvd.grouped_allreduce(gradients, op=hvd.Sum, name="gradients"):
        assert (one == hvd.size()).all()
hvd.shutdown()
say("done")
"""


@pytest.mark.parametrize("hosts", [["a", "a", "a"], ["a", "a", "b"]], ids=["one host", "two hosts"])
def test_all_ranks_change_before_the_same_batch(hosts):
    env = {
        "HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "0", "HOROVOD_LOG_LEVEL": "debug",
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2",
    }  # fmt: skip
    with Processes(CHANGING, 3, env=env, hosts=hosts) as ranks:
        assert ranks.finish() == [0, 0, 0]
        lines = [re.findall(r": tuning (\d+ after batch \d+: .*)", "".join(e)) for e in ranks.errors]
        said = "".join(ranks.errors[0])
    assert len(lines[0]) > 8
    assert [line.split()[0] for line in lines[0]] == [str(n + 1) for n in range(len(lines[0]))]
    assert lines[1] == lines[0] and lines[2] == lines[0]
    assert said.count("horovod: autotune") == 1


def test_what_is_set_stays_and_the_rest_is_searched(tmp_path):
    log, output = tmp_path / "samples.csv", tmp_path / "tuned.yaml"
    env = settings(log, output, HOROVOD_FUSION_THRESHOLD="262144", HOROVOD_SMALL_BYTES="8192",
                   HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE="1")  # fmt: skip
    run_world(job, 2, env=env, args=(400, [256, 100000, 7], str(output)))
    seen = rows(log)
    assert {row["tensor_fusion_threshold"] for row in seen} == {"0.25"}
    assert {row["small_bytes"] for row in seen} == {"8192"}
    assert len({row["chunk_bytes"] for row in seen}) > 1 and len({row["spin_us"] for row in seen}) > 1


def two_worlds(log, output):
    import os

    import horovod.numpy as hvd

    hvd.init()
    rank = hvd.rank()
    train(400, [256, 7], output)
    hvd.shutdown()
    if rank == 0:
        os.remove(output)
    if rank == 2:
        return
    hvd.init(comm=[0, 1])
    train(400, [256, 7], output)
    hvd.shutdown()


def test_a_world_of_another_size_is_tuned_again(tmp_path):
    """As an elastic job is after a change: the table goes on, the file is that of the newest world."""
    log, output = tmp_path / "samples.csv", tmp_path / "tuned.yaml"
    run_world(two_worlds, 3, env=settings(log, output, HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE="1"),
              args=(str(log), str(output)))  # fmt: skip
    best = [row["ranks"] for row in rows(log) if row["phase"] == "best"]
    assert best == ["3", "2"]
    assert "on 2 ranks" in output.read_text()


def test_a_wrong_start_is_refused_on_all_ranks():
    with pytest.raises(Exception, match="HOROVOD_AUTOTUNE_START=speed=9 must be a list such as"):
        run_world(job, 2, env={"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_START": "speed=9"},
                  args=(1, [1]))  # fmt: skip


def test_names_that_never_come_back_are_said_to_be_no_steps():
    script = """
hvd.init()
for step in range(50):
    hvd.allreduce(np.ones(10, np.float32))
hvd.shutdown()
"""
    with Processes(script, 2, env={"HOROVOD_AUTOTUNE": "1"}) as ranks:
        assert ranks.finish() == [0, 0]
        assert "autotune saw no steps" in "".join(ranks.errors[0])
        assert "autotune" not in "".join(ranks.errors[1])
