# SPDX-License-Identifier: Apache-2.0
"""Large batches in small memory: gradients of several backward passes are summed before they are sent.

    horovodrun -np 2 python examples/pytorch_gradient_accumulation.py
    horovodrun -np 2 python examples/pytorch_gradient_accumulation.py --style no-sync

Both styles send gradients once for every `--accumulate` micro-batches, and both allow a shorter last group.
"""

import argparse
import contextlib

import torch
import torch.nn.functional as F
from _data import load_digits
from _torch_model import Net, correct, pick_device

import horovod.torch as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data-dir", help="directory with the MNIST files")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--micro-batch", type=int, default=16, help="images in memory at once, per process")
parser.add_argument("--accumulate", type=int, default=4, help="micro-batches to a step")
parser.add_argument("--style", choices=["passes", "no-sync"], default="passes")
parser.add_argument("--lr", type=float, default=0.05, help="for one process")
args = parser.parse_args()

hvd.init()
torch.manual_seed(42)
device = pick_device(hvd.local_rank(), hvd.local_size())
data = load_digits(args.data_dir)
per_rank = len(data.train_x) // hvd.size()  # the same number of images everywhere
mine = slice(hvd.rank() * per_rank, (hvd.rank() + 1) * per_rank)
train_x, train_y = torch.from_numpy(data.train_x[mine]), torch.from_numpy(data.train_y[mine])

model = Net(side=data.train_x.shape[-1]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)

# Horovod: with backward_passes_per_step the optimizer counts the passes itself.
passes = args.accumulate if args.style == "passes" else 1
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=passes
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

steps = 0
for epoch in range(args.epochs):
    micro_batches = torch.randperm(per_rank).split(args.micro_batch)
    groups = [micro_batches[i : i + args.accumulate] for i in range(0, len(micro_batches), args.accumulate)]
    total = 0.0
    for group in groups:
        optimizer.zero_grad()
        images = sum(len(batch) for batch in group)
        for position, batch in enumerate(group):
            # Horovod: all but the last pass of a group stay local. With `passes` the optimizer knows.
            local = args.style == "no-sync" and position < len(group) - 1
            with optimizer.no_sync() if local else contextlib.nullcontext():
                x, y = train_x[batch].to(device), train_y[batch].to(device)
                loss = F.cross_entropy(model(x), y, reduction="sum") / images  # the group's mean, in parts
                loss.backward()
                total += loss.item()
        optimizer.step()  # a group that was cut short is reduced here
        steps += 1
    mean = hvd.allreduce(torch.tensor(total / len(groups)))
    right = correct(model, torch.from_numpy(data.test_x).to(device), torch.from_numpy(data.test_y).to(device))
    if hvd.rank() == 0:
        accuracy = right.item() / len(data.test_y)
        print(f"epoch {epoch + 1}: loss {mean:.4f}, test accuracy {accuracy:.3f}", flush=True)
if hvd.rank() == 0:
    print(f"{steps} steps of {args.accumulate} x {args.micro_batch} x {hvd.size()} images")
