# SPDX-License-Identifier: Apache-2.0
"""The network the PyTorch examples train, and its test. Nothing in here knows about Horovod."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    """Two convolutions and two dense layers, for square images of any size."""

    def __init__(self, side: int = 8, width: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.dense1 = nn.Linear(2 * width * (side // 2) ** 2, 64)
        self.dense2 = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.dense2(F.relu(self.dense1(x.flatten(1))))


def correct(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """How many of these images the model reads right."""
    model.eval()
    with torch.no_grad():
        right = (model(x).argmax(1) == y).sum()
    model.train()
    return right


def pick_device(local_rank: int, local_size: int) -> torch.device:
    """One GPU for each process of a host; without GPUs, an equal share of the cores."""
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
        return torch.device("cuda")
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // local_size))
    return torch.device("cpu")
