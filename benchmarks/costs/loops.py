# SPDX-License-Identifier: Apache-2.0
"""What can be taken apart: a call that is repeated, on every rank of a small job."""

from __future__ import annotations

from math import prod
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from benchmarks.cases.many_tensors import SMALL, resnet50_shapes

Call = Callable[[], Any]


def small_tensors() -> List[int]:
    """Elements of the 107 smallest gradients of ResNet-50."""
    return sorted(prod(shape) for shape in resnet50_shapes())[:SMALL]


def _allreduce() -> Call:
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    data = np.ones(1, np.float32)
    return lambda: hvd.allreduce_(data, op=hvd.Sum, name="bench")


def _barrier() -> Call:
    import horovod.numpy as hvd

    hvd.init()
    return hvd.barrier


def _many() -> Call:
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    tensors = [(np.ones(n, np.float32), f"g{i}") for i, n in enumerate(small_tensors())]

    def step() -> None:
        handles = [hvd.allreduce_async_(data, op=hvd.Sum, name=name) for data, name in tensors]
        for handle in handles:
            hvd.synchronize(handle)

    return step


def _grouped() -> Call:
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    tensors = [np.ones(n, np.float32) for n in small_tensors()]
    return lambda: hvd.grouped_allreduce_(tensors, op=hvd.Sum, name="bench")


def _hooks(model: str) -> Call:
    import torch

    import horovod.torch as hvd
    from benchmarks.contenders.torch_models import network

    torch.set_num_threads(1)
    hvd.init()
    module = network(model)
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD(module.parameters(), lr=0.1), named_parameters=module.named_parameters()
    )
    hooks: List[Tuple[Any, Callable[[Any], None]]] = []
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
        hooks.append((parameter, next(iter(parameter._post_accumulate_grad_hooks.values()))))

    def step() -> None:
        for parameter, hook in hooks:
            hook(parameter)
        optimizer.synchronize()  # the average of zeros is zero: nothing to clear

    return step


class Loop(NamedTuple):
    """One thing to take apart."""

    ranks: int
    prepare: Callable[[], Call]
    units: int = 1  # tensors in a call
    native: str = ""  # the same by the C header, in native.c
    about: str = ""


LOOPS: Dict[str, Loop] = {
    "allreduce-1": Loop(1, _allreduce, native="allreduce", about="allreduce 4 B, 1 rank"),
    "allreduce-2": Loop(2, _allreduce, native="allreduce", about="allreduce 4 B, 2 ranks"),
    "allreduce-4": Loop(4, _allreduce, native="allreduce", about="allreduce 4 B, 4 ranks"),
    "barrier-1": Loop(1, _barrier, native="barrier", about="barrier, 1 rank"),
    "barrier-2": Loop(2, _barrier, native="barrier", about="barrier, 2 ranks"),
    "many-1": Loop(1, _many, SMALL, "many", "107 small tensors one by one, 1 rank"),
    "many-2": Loop(2, _many, SMALL, "many", "107 small tensors one by one, 2 ranks"),
    "grouped-2": Loop(2, _grouped, SMALL, "grouped", "107 small tensors grouped, 2 ranks"),
    "hook-2": Loop(2, lambda: _hooks("small"), 160, about="torch hook and its wait, 160 parameters, 2 ranks"),
    "hook-large-2": Loop(2, lambda: _hooks("linear"), 40, about="the same, 20 x Linear(1024), 2 ranks"),
}
