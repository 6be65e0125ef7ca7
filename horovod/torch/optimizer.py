# SPDX-License-Identifier: Apache-2.0
"""`DistributedOptimizer`: an optimizer whose gradients are reduced over all ranks."""

from __future__ import annotations

from typing import Any, Optional

import torch

from horovod.common.arguments import check_groups, check_passes, check_predivide
from horovod.common.constants import Average
from horovod.common.heap import keep_freed_memory
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch._core import Settings
from horovod.torch._distributed import Distributed, class_around, wrap
from horovod.torch._naming import Groups, Named, group_names, name_parameters
from horovod.torch.compression import Compression


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Named] = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps an optimizer so that it steps on gradients reduced over all ranks.

    Gradients are sent while backward still computes the others. When `loss.backward()` returns they are the
    reduced ones; parameters that took no part count as zeros. After the first step the ranks' weights are
    compared, and a warning says if they differ.

    Args:
        optimizer: any `torch.optim.Optimizer`.
        named_parameters: `model.named_parameters()`; the names appear in errors and the timeline.
        compression: what travels instead of the gradients, see `horovod.torch.compression`.
        backward_passes_per_step: gradients of so many backward passes are added up locally before they are
            reduced. Their sum is not divided. A step after fewer passes reduces what there is.
        op: hvd.Average, hvd.Sum or hvd.Adasum.
        gradient_predivide_factor: with Average, divide by this before the sum and by size / this after it.
        num_groups: old spelling of `groups=n`.
        groups: reduce gradients in groups: their number, or lists of parameters. None: let the engine decide.
        sparse_as_dense: send sparse gradients as dense ones from the start. Otherwise each parameter's are
            sent so as soon as that turns out to be fewer bytes.
        process_set: the ranks that share gradients; optimizers on other ranks act locally.

    Returns:
        An instance of the optimizer's class with the same `param_groups` and `state`, and with the methods
        `synchronize`, `skip_synchronize`, `no_sync` and `set_backward_passes_per_step`.
    """
    check_predivide(gradient_predivide_factor, op)
    groups = check_groups(
        groups, num_groups, member="torch.Tensor", is_member=lambda one: isinstance(one, torch.Tensor)
    )
    if isinstance(optimizer, Distributed):
        optimizer = optimizer._hvd.inner
    settings = Settings(
        compression,
        check_passes(backward_passes_per_step),
        op,
        gradient_predivide_factor,
        sparse_as_dense,
        None if process_set is global_process_set else tuple(process_set.ranks or ()),
    )
    names = name_parameters(optimizer, named_parameters)
    wrapper = wrap(optimizer, names, group_names(names, groups, process_set), settings, process_set)
    wrapper._hvd.reducer.bind()
    if any(param.device.type == "cpu" for param in names):
        keep_freed_memory()
    return wrapper


def __getattr__(name: str) -> Any:
    # Makes the classes of distributed optimizers importable, so that whatever pickles the class itself works.
    base = getattr(torch.optim, name, None)
    if isinstance(base, type) and issubclass(base, torch.optim.Optimizer):
        return class_around(base)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_DistributedOptimizer = Distributed
_DistributedAdasumOptimizer = Distributed
