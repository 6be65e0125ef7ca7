# SPDX-License-Identifier: Apache-2.0
"""What the demo runs on every process: digits, a small convolutional network, the same total batch always.

One process trains on batches of 128 images; two on 64 each, with averaged gradients. That is the same
training, so the curves agree and only the time differs. Rank 0 prints one line of JSON after every epoch.
"""

import argparse
import json
import os
import sys
import time

import torch
import torch.nn.functional as F

import horovod.torch as hvd
from horovod.numpy import metrics  # one engine in a process, so these are PyTorch's numbers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))
from _data import load_digits  # noqa: E402
from _torch_model import Net, correct  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--width", type=int, default=48)
args = parser.parse_args()

hvd.init()
torch.set_num_threads(1)  # a core for each process, so that two have twice as much as one
torch.manual_seed(1)
data = load_digits()
train_x, train_y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
test_x, test_y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)

model = Net(side=8, width=args.width)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

clock = 0.0
for epoch in range(args.epochs):
    order = torch.randperm(len(train_x), generator=torch.Generator().manual_seed(epoch))
    batches = order.split(128)[: len(order) // 128]
    busy_before, start, total = metrics()["execute_us"], time.perf_counter(), torch.zeros(())
    for batch in batches:
        mine = batch[hvd.rank() :: hvd.size()]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(train_x[mine]), train_y[mine])
        loss.backward()
        optimizer.step()
        total += loss.detach()
    took = time.perf_counter() - start
    clock += took
    line = {
        "epoch": epoch + 1,
        "epochs": args.epochs,
        "seconds": clock,
        "loss": hvd.allreduce(total / len(batches)).item(),
        "accuracy": correct(model, test_x, test_y).item() / len(test_y),
        "images_per_second": 128 * len(batches) / took,
        "communication": (metrics()["execute_us"] - busy_before) / 1e6 / took if hvd.size() > 1 else 0.0,
    }
    if hvd.rank() == 0:
        print(json.dumps(line), flush=True)
