# SPDX-License-Identifier: Apache-2.0
"""The networks of the trainings: a deep stack of large linear layers, and a residual convolution net."""

from __future__ import annotations

from typing import Tuple

import torch
from torch import nn


class Block(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


def residual() -> nn.Module:
    """Eighteen layers, 11.7 million parameters."""
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(width, outputs, stride), Block(outputs, outputs, 1)]
        width = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def linear() -> nn.Module:
    """Twenty linear layers of width 1024, 21 million parameters."""
    return nn.Sequential(*[layer for _ in range(20) for layer in (nn.Linear(1024, 1024), nn.ReLU())])


def small() -> nn.Module:
    """160 parameters of up to 1 KiB, which stay in the caches."""
    return nn.Sequential(*(nn.Linear(16, 16) for _ in range(80)))


def network(name: str) -> nn.Module:
    """A model by its name."""
    torch.manual_seed(0)
    return {"linear": linear, "residual": residual, "small": small}[name]()


def build(name: str) -> Tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A model with an input batch and a target of its output's shape."""
    model = network(name)
    x = torch.randn(32, 1024) if name == "linear" else torch.randn(4, 3, 96, 96)
    with torch.no_grad():
        target = torch.randn(model(x).shape)
    return model, x, target
