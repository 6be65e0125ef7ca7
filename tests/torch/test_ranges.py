# SPDX-License-Identifier: Apache-2.0
"""What torch.profiler shows of Horovod, and that steps are counted."""

from __future__ import annotations

import torch
from tests_support import shared_world
from torch_training import batches, loss_of, net, sgd


def profiled():
    import horovod.torch as hvd

    model = net()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    before = hvd.metrics()["steps"]
    seen = []
    for watched in (False, True):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            if watched:
                hvd.allreduce(torch.ones(3), name="ranges")
                hvd.broadcast(torch.ones(3), 0, name="ranges")
                optimizer.zero_grad()
                loss_of(model, *batches(1)[0]).backward()
                optimizer.step()
        if not watched:
            hvd.allreduce(torch.ones(3), name="unwatched")
        seen.append({event.key for event in profile.key_averages() if event.key.startswith("hvd.")})
    return seen, hvd.metrics()["steps"] - before


def test_calls_and_waiting_are_ranges_while_somebody_profiles():
    for (unwatched, watched), steps in shared_world(2).run(profiled):
        assert unwatched == set()
        assert watched == {"hvd.allreduce", "hvd.broadcast", "hvd.synchronize"}
        assert steps == 1
