# SPDX-License-Identifier: Apache-2.0
"""Uneven data: processes that run out of batches wait with `hvd.join()` until the last one is done.

    horovodrun -np 2 python examples/uneven_data_join.py

Rank r gets (r + 1) parts of the data, so the ranks have different numbers of batches. Without `join` the job
would stall at the end of the shortest part. A rank that joined counts as zeros in the others' gradients.
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from _data import load_digits
from _torch_model import Net, correct, pick_device

import horovod.torch as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data-dir", help="directory with the MNIST files")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=32, help="per process")
parser.add_argument("--lr", type=float, default=0.02, help="for one process")
args = parser.parse_args()

hvd.init()
torch.manual_seed(42)
device = pick_device(hvd.local_rank(), hvd.local_size())
data = load_digits(args.data_dir)
parts = np.cumsum([0] + [rank + 1 for rank in range(hvd.size())])
edges = (parts * len(data.train_x)) // parts[-1]
mine = slice(edges[hvd.rank()], edges[hvd.rank() + 1])
train_x, train_y = torch.from_numpy(data.train_x[mine]), torch.from_numpy(data.train_y[mine])

model = Net(side=data.train_x.shape[-1]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

for epoch in range(args.epochs):
    total, batches = 0.0, torch.randperm(len(train_x)).split(args.batch_size)
    for batch in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(train_x[batch].to(device)), train_y[batch].to(device))
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    # Horovod: wait here, taking part in the others' reductions, until everyone is here.
    last = hvd.join()
    # Ranks that joined early missed the last updates: take the weights of the rank that was last.
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    counts = hvd.allgather_object(len(batches))
    mean = hvd.allreduce(torch.tensor(total), op=hvd.Sum) / len(data.train_x)
    right = correct(model, torch.from_numpy(data.test_x).to(device), torch.from_numpy(data.test_y).to(device))
    if hvd.rank() == 0:
        accuracy = right.item() / len(data.test_y)
        print(f"epoch {epoch + 1}: batches by rank {counts}, last to join: rank {last}, ", end="")
        print(f"loss {mean:.4f}, test accuracy {accuracy:.3f}", flush=True)
