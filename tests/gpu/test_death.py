# SPDX-License-Identifier: Apache-2.0
"""kill -9 in mid-collective, each way: the others hear of it, their GPU is let go, their process goes on.
And what else a GPU or NCCL refuses, with what to do."""

from __future__ import annotations

import time

import pytest
from processes import Processes
from real_gpu import WAYS, way_env

SCRIPT = """
import torch
import horovod.torch as hvd
from real_gpu import enter
hvd.init()
enter()
x = torch.ones(4_000_000, device="cuda")
hvd.allreduce_(x, name="first")
say("ready")
def loop():
    for i in range(10**9):
        hvd.allreduce_(x, name="t")
        if i % 50 == 0:
            torch.cuda.synchronize()
attempt(loop)
torch.cuda.synchronize()   # no kernel is left spinning
say("let go")
hvd.shutdown()
for name in [name for name in os.environ if name.startswith("HOROVOD_GLOO") or name == "_HOROVOD_SECRET_KEY"]:
    del os.environ[name]
os.environ.update(HOROVOD_RANK="0", HOROVOD_SIZE="1", HOROVOD_LOCAL_RANK="0", HOROVOD_LOCAL_SIZE="1")
hvd.init()
say(hvd.allreduce(torch.full((1000,), 5.0, device="cuda"), op=hvd.Sum).eq(5).all().item())
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_killed_rank_is_named_and_the_gpu_is_let_go(way, capsys):
    env = way_env(way)
    if way == "NCCL":
        # Its kernels use host memory of their process. Under MPS, those of a killed rank fault for all ranks.
        env["CUDA_MPS_PIPE_DIRECTORY"] = "/nowhere"
    with Processes(SCRIPT, 3, env=env) as ranks:
        for rank in range(3):
            assert ranks.heard(rank, timeout=90) == "ready"
        killed = time.time()
        ranks.kill(2)
        for rank in range(2):
            outcome = ranks.heard(rank)
            assert outcome["error"] == "HorovodInternalError", outcome
            assert "rank 2" in outcome["text"], outcome
            with capsys.disabled():
                print(f"\n{way}: rank {rank} raised {outcome['at'] - killed:.2f} s after the kill of rank 2")
            assert ranks.heard(rank) == "let go"
            assert ranks.heard(rank) is True
        assert ranks.finish()[:2] == [0, 0]


AGAIN = """
import torch
import horovod.torch as hvd
from real_gpu import enter
for life in range(3):
    hvd.init()
    enter()
    for count in (10, 3_000_000):
        out = hvd.allreduce(torch.ones(count, device="cuda"), op=hvd.Sum, name=f"x{count}")
        assert out.eq(float(hvd.size())).all()
    hvd.shutdown()
say("done")
"""


@pytest.mark.parametrize("way", WAYS)
def test_init_after_shutdown(way):
    with Processes(AGAIN, 2, env=way_env(way)) as ranks:
        for rank in range(2):
            assert ranks.heard(rank, timeout=90) == "done"
        assert ranks.finish() == [0, 0]


REFUSED = """
import torch
import horovod.torch as hvd
hvd.init()
torch.cuda.set_device(0)
say("ready")
x = torch.ones(1000, device="cuda")
{before}
attempt(lambda: hvd.allreduce_(x, name="x"))
"""


def refused(way: str, before: str) -> list:
    """What both ranks of a job are told when they reduce a tensor."""
    with Processes(REFUSED.replace("{before}", before), 2, env=way_env(way)) as ranks:
        assert [ranks.heard(rank, timeout=90) for rank in range(2)] == ["ready", "ready"]
        return [ranks.heard(rank, timeout=90) for rank in range(2)]


def test_two_ranks_on_one_gpu_are_told_so_by_nccl():
    for outcome in refused("NCCL", ""):
        assert "Duplicate GPU detected" in outcome["text"], outcome
        assert "HOROVOD_GPU_OPERATIONS=direct" in outcome["text"], outcome


def test_a_full_gpu():
    """Other tests must not run beside it: rank 0 takes all memory but for some MiB."""
    fill = """
hog = []
size = torch.cuda.mem_get_info()[0] if hvd.rank() == 0 else 0
while size > 4 << 20:
    try:
        hog.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        size //= 2
hvd.barrier()
"""
    for outcome in refused("direct", fill):
        assert "of memory on GPU 0" in outcome["text"] and "are free" in outcome["text"], outcome
        assert "rank " in outcome["text"], outcome  # either may be the one that runs out
