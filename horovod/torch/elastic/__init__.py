# SPDX-License-Identifier: Apache-2.0
"""Elastic training for PyTorch: state that survives a change of workers, and the loop around it."""

from __future__ import annotations

from typing import Any, Callable

from horovod.common.basics import basics
from horovod.common.elastic import checkpoint, run_fn
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.elastic.state import TorchState

init, shutdown = basics.init, basics.shutdown


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function `func(state, ...)` so that it goes on after failures and host changes."""
    return run_fn(func, basics.reset)


__all__ = ["ElasticSampler", "TorchState", "checkpoint", "init", "run", "run_fn", "shutdown"]
