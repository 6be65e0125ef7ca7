# SPDX-License-Identifier: Apache-2.0
"""horovod.torch on CPU tensors."""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable

from benchmarks.contenders.horovod_numpy import InPlace
from benchmarks.contenders.torch_alone import sgd, stepper

HOOK_TURNS = 20


class HorovodTorch(InPlace):
    """Collectives, and training with hvd.DistributedOptimizer."""

    def __init__(self) -> None:
        import torch

        import horovod.torch as hvd

        torch.set_num_threads(1)
        self.torch = torch
        self.join(hvd)

    def buffer(self, count: int) -> Any:
        return self.torch.ones(count)

    def trainer(self, model: str) -> Callable[[], None]:
        from benchmarks.contenders.torch_models import build

        module, x, y = build(model)
        return stepper(module, self._optimizer(module, model), x, y)

    def hook_seconds(self, model: str) -> float:
        from benchmarks.contenders.torch_models import network

        module = network(model)
        optimizer = self._optimizer(module, f"{model}.hooks")
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        hooks = [(p, next(iter(p._post_accumulate_grad_hooks.values()))) for p in parameters]
        submit_the_rest = optimizer._hvd.reducer.flight.send_quick  # what hooks have put off
        for p in parameters:
            p.grad = self.torch.zeros_like(p)
        spent = []
        for _ in range(HOOK_TURNS):
            start = time.thread_time()
            for p, hook in hooks:
                hook(p)
            submit_the_rest()
            spent.append(time.thread_time() - start)
            optimizer.synchronize()
            optimizer.zero_grad(set_to_none=False)
        return statistics.median(spent) / len(hooks)

    def _optimizer(self, module: Any, prefix: str) -> Any:
        named = [(f"{prefix}.{name}", parameter) for name, parameter in module.named_parameters()]
        return self.hvd.DistributedOptimizer(sgd(module), named)
