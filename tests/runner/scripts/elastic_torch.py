# SPDX-License-Identifier: Apache-2.0
"""A PyTorch training with a sampler, SyncBatchNorm and a distributed optimizer.

Its dataset is numbers; the state keeps how often each was processed, summed over ranks at every step.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch

import horovod.torch as hvd

SAMPLES, EPOCHS, BATCH = 48, 3, 4
hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Sequential(torch.nn.Linear(1, 4), hvd.SyncBatchNorm(4), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(range(SAMPLES), seed=3)
state = hvd.elastic.TorchState(
    model, optimizer, sampler=sampler, epoch=0, seen=torch.zeros(EPOCHS, SAMPLES, dtype=torch.int32), tries=0
)


def scale_learning_rate():
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * hvd.size()


def say(**values):
    os.write(1, (json.dumps(dict(values, pid=os.getpid(), time=time.time())) + "\n").encode())


@hvd.elastic.run
def train(state):
    say(event="train", rank=hvd.rank(), size=hvd.size(), generation=0, left=len(sampler.remaining_indices))
    while state.epoch < EPOCHS:
        loader = torch.utils.data.DataLoader(torch.arange(SAMPLES), batch_size=BATCH, sampler=sampler)
        for number, batch in enumerate(loader):
            loss = (model(batch.float().unsqueeze(1) / SAMPLES) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mine = torch.bincount(batch, minlength=SAMPLES).int()
            seen = state.seen.clone()
            seen[state.epoch] += hvd.allreduce(mine, op=hvd.Sum, name="seen")
            state.seen = seen
            sampler.record_batch(number, len(batch))
            time.sleep(float(sys.argv[1]))
            if hvd.rank() == 0:
                say(event="step", size=hvd.size(), lr=optimizer.param_groups[0]["lr"])
            state.commit() if number % 2 else state.check_host_updates()
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


state.register_reset_callbacks([scale_learning_rate])
train(state)
weights = hvd.allgather_object([one.tolist() for one in model.state_dict().values()])
say(
    event="result",
    rank=hvd.rank(),
    size=hvd.size(),
    seen=state.seen.tolist(),
    alike=all(w == weights[0] for w in weights),
)
