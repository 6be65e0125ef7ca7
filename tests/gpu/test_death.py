# SPDX-License-Identifier: Apache-2.0
"""kill -9 in mid-collective, each way: the others hear of it, their GPU is let go, their process goes on."""

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
