# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: one process writes, all resume, also in a job of another size.

    horovodrun -np 2 python examples/checkpoint_resume.py --epochs 3
    horovodrun -np 2 python examples/checkpoint_resume.py --epochs 6      # goes on with epoch 4
    python examples/checkpoint_resume.py --epochs 7                       # goes on with epoch 7, alone

Rank 0 alone reads and writes the file, so the other hosts need not see it.
"""

import argparse
import os

import torch
import torch.nn.functional as F
from _data import load_digits
from _torch_model import Net, correct, pick_device

import horovod.torch as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--data-dir", help="directory with the MNIST files")
parser.add_argument("--checkpoint", default="checkpoint.pt", help="file to write after every epoch")
parser.add_argument("--epochs", type=int, default=3, help="up to this one")
parser.add_argument("--batch-size", type=int, default=32, help="per process")
parser.add_argument("--lr", type=float, default=0.02, help="for one process")
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

done = 0
if hvd.rank() == 0 and os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint, map_location=device, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])  # a job of another size may want another learning rate:
    for group in optimizer.param_groups:
        group["lr"] = args.lr * hvd.size()
    done = saved["epoch"]

# Horovod: everyone takes what rank 0 has, be it loaded or new.
done = hvd.broadcast_object(done, root_rank=0)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
if hvd.rank() == 0:
    print(f"resuming after epoch {done}" if done else "starting anew", flush=True)

for epoch in range(done, args.epochs):
    total = 0.0
    torch.manual_seed(epoch)
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
        # Written beside and renamed: a job that is ended now leaves the old file or the new one, never half.
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
        torch.save(state, args.checkpoint + ".part")
        os.replace(args.checkpoint + ".part", args.checkpoint)
