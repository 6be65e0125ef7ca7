# SPDX-License-Identifier: Apache-2.0
"""Mixed precision and gradient clipping.

    horovodrun -np 2 python examples/pytorch_amp.py

On a GPU it computes in float16 with a GradScaler, on a CPU in bfloat16, which needs no scaling. When
`backward()` returns, the gradients are the averaged ones: unscaling and clipping go where they go in a script
for one process.
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
parser.add_argument("--lr", type=float, default=0.02, help="for one process")
parser.add_argument("--clip", type=float, default=1.0, help="largest norm of the averaged gradient")
args = parser.parse_args()

hvd.init()
torch.manual_seed(42)
device = pick_device(hvd.local_rank(), hvd.local_size())
data = load_digits(args.data_dir)
per_rank = len(data.train_x) // hvd.size()
mine = slice(hvd.rank() * per_rank, (hvd.rank() + 1) * per_rank)
train_x, train_y = torch.from_numpy(data.train_x[mine]), torch.from_numpy(data.train_y[mine])

model = Net(side=data.train_x.shape[-1]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

on_gpu = device.type == "cuda"
low_precision = torch.float16 if on_gpu else torch.bfloat16
scaler = torch.amp.GradScaler(device.type, enabled=on_gpu)

for epoch in range(args.epochs):
    total = 0.0
    batches = torch.randperm(per_rank).split(args.batch_size)
    for batch in batches:
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=low_precision):
            loss = F.cross_entropy(model(train_x[batch].to(device)), train_y[batch].to(device))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)  # the same on every process
        scaler.step(optimizer)
        scaler.update()
        total += loss.item()
    mean = hvd.allreduce(torch.tensor(total / len(batches)))
    right = correct(model, torch.from_numpy(data.test_x).to(device), torch.from_numpy(data.test_y).to(device))
    norms = hvd.allgather(norm.detach().reshape(1).cpu())
    if hvd.rank() == 0:
        accuracy = right.item() / len(data.test_y)
        print(f"epoch {epoch + 1}: loss {mean:.4f}, test accuracy {accuracy:.3f}", flush=True)
if hvd.rank() == 0:
    print(f"norms of the last gradient on all processes equal: {bool((norms == norms[0]).all())}")
