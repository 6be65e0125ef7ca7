# SPDX-License-Identifier: Apache-2.0
"""How fast a PyTorch model trains on random images, on several processes.

    horovodrun -np 2 python examples/pytorch_synthetic_benchmark.py
    horovodrun -np 8 python examples/pytorch_synthetic_benchmark.py --model resnet50 --image 224

Without --model it trains a small built-in residual network; with it, any classification model of torchvision.
Compare the images per second with those of one process to see how well training scales.
"""

import argparse
import time

import torch
import torch.nn.functional as F
from _torch_model import pick_device
from torch import nn

import horovod.torch as hvd

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--model", help="name of a torchvision model, e.g. resnet50")
parser.add_argument("--batch-size", type=int, default=32, help="per process")
parser.add_argument("--image", type=int, default=32, help="pixels a side")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--batches-per-round", type=int, default=10)
parser.add_argument("--warmup", type=int, default=5, help="batches before the first round")
parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients in half precision")
parser.add_argument("--adasum", action="store_true", help="combine gradients with Adasum")
args = parser.parse_args()


class Block(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.body(x))


def small_resnet(classes: int = 1000, width: int = 64) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 7, stride=4, padding=3), *(Block(width) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes),
    )  # fmt: skip


hvd.init()
device = pick_device(hvd.local_rank(), hvd.local_size())
torch.manual_seed(42)

if args.model:
    from torchvision import models

    model = getattr(models, args.model)().to(device)
else:
    model = small_resnet().to(device)

optimizer = torch.optim.SGD(model.parameters(), lr=0.01 if args.adasum else 0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
    op=hvd.Adasum if args.adasum else hvd.Average,
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

images = torch.randn(args.batch_size, 3, args.image, args.image, device=device)
labels = torch.randint(0, 1000, (args.batch_size,), device=device)


def train(batches: int) -> float:
    """Images per second of this process over so many batches."""
    start = time.perf_counter()
    for _ in range(batches):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return batches * args.batch_size / (time.perf_counter() - start)


def say(text: str) -> None:
    if hvd.rank() == 0:
        print(text, flush=True)


parameters = sum(p.numel() for p in model.parameters())
name = args.model or "small residual network"
say(f"{name}: {parameters / 1e6:.1f} million parameters, {hvd.size()} processes")
train(args.warmup)
rates = []
for number in range(args.rounds):
    rates.append(train(args.batches_per_round))
    say(f"round {number + 1}: {rates[-1]:.1f} images/s on each process")
mean = torch.tensor(rates).mean()
total = hvd.allreduce(mean, op=hvd.Sum)
say(f"all {hvd.size()}: {total:.1f} images/s, {total / hvd.size():.1f} on each process")
