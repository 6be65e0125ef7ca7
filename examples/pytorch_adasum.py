# SPDX-License-Identifier: Apache-2.0
"""Adasum: combines gradients so that the learning rate need not grow with the number of processes.

    horovodrun -np 2 python examples/pytorch_adasum.py
    horovodrun -np 3 python examples/pytorch_adasum.py          # any number of processes works

Where gradients of two processes point the same way Adasum takes their mean, where they are orthogonal their
sum.
"""

import argparse

import torch
import torch.nn.functional as F
from _data import load_digits
from _torch_model import Net, correct, pick_device

import horovod.torch as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data-dir", help="directory with the MNIST files")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=32, help="per process")
parser.add_argument("--lr", type=float, default=0.02)
args = parser.parse_args()

hvd.init()
torch.manual_seed(42)
device = pick_device(hvd.local_rank(), hvd.local_size())
data = load_digits(args.data_dir)
per_rank = len(data.train_x) // hvd.size()
mine = slice(hvd.rank() * per_rank, (hvd.rank() + 1) * per_rank)
train_x, train_y = torch.from_numpy(data.train_x[mine]), torch.from_numpy(data.train_y[mine])

model = Net(side=data.train_x.shape[-1]).to(device)
# Horovod: the learning rate of one process, not multiplied by size().
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), op=hvd.Adasum)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

# What Adasum does to two vectors.
same = hvd.allreduce(torch.ones(hvd.size()), op=hvd.Adasum)
orthogonal = hvd.allreduce(torch.eye(hvd.size())[hvd.rank()], op=hvd.Adasum)
if hvd.rank() == 0:
    print(f"equal vectors of ones give {same.tolist()}, orthogonal unit vectors {orthogonal.tolist()}")

for epoch in range(args.epochs):
    total = 0.0
    batches = torch.randperm(per_rank).split(args.batch_size)
    for batch in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(train_x[batch].to(device)), train_y[batch].to(device))
        loss.backward()
        optimizer.step()
        total += loss.item()
    mean = hvd.allreduce(torch.tensor(total / len(batches)))
    right = correct(model, torch.from_numpy(data.test_x).to(device), torch.from_numpy(data.test_y).to(device))
    if hvd.rank() == 0:
        accuracy = right.item() / len(data.test_y)
        print(f"epoch {epoch + 1}: loss {mean:.4f}, test accuracy {accuracy:.3f}", flush=True)
