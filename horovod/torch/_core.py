# SPDX-License-Identifier: Apache-2.0
"""What a distributed optimizer keeps beside the optimizer it wraps."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import torch

from horovod.common import observation
from horovod.common.basics import basics
from horovod.common.constants import Adasum
from horovod.common.process_sets import ProcessSet
from horovod.common.weights import WeightCheck
from horovod.torch._adasum import AdasumReducer
from horovod.torch._naming import default_name
from horovod.torch._reducer import GradientReducer
from horovod.torch._rule import Rule
from horovod.torch._weights import ADVICE, fingerprints


class Settings(NamedTuple):
    """The arguments of `DistributedOptimizer`, in a form that can be pickled."""

    compression: Any
    backward_passes_per_step: int
    op: int
    gradient_predivide_factor: float
    sparse_as_dense: bool
    ranks: Optional[Tuple[int, ...]]  # of the process set; None: all


class Core:
    """The wrapped optimizer, its parameters' names, and the reducer of their gradients."""

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        names: Dict[torch.Tensor, str],
        groups: List[List[str]],
        settings: Settings,
        process_set: ProcessSet,
    ) -> None:
        self.inner = inner
        self.names = names
        self.groups = groups
        self.settings = settings
        self.skip = False
        self.explicit = False  # synchronize() was called since the last step
        self.weight_check = WeightCheck("after the first step", ADVICE)
        self.hooked: Set[int] = set()  # ids of parameters that have a hook, or had one
        factor = settings.gradient_predivide_factor
        adasum = settings.op == Adasum and basics.size() > 1
        rule = Rule(
            settings.op, 1.0 / factor, factor, settings.compression, settings.sparse_as_dense, process_set
        )
        make = AdasumReducer if adasum else GradientReducer
        self.reducer = make(rule, settings.backward_passes_per_step)
        params = {name: param for param, name in names.items() if param.requires_grad}
        members = [[(n, params[n]) for n in group if n in params] for group in groups]
        self.hooked.update(id(param) for param in params.values())
        self.reducer.attach([group for group in members if group])

    def hook_new_parameters(self) -> None:
        """Takes in parameters that were added or unfrozen since the last time."""
        for number, group in enumerate(self.inner.param_groups):
            for index, param in enumerate(group["params"]):
                if param.requires_grad and id(param) not in self.hooked:
                    self.hooked.add(id(param))
                    name = self.names.setdefault(param, default_name(number, index))
                    self.reducer.attach([[(name, param)]])

    def prepare_step(self) -> bool:
        """Sees to it that the gradients are what the step needs; whether they are those of all ranks."""
        if self.reducer.paused:
            self.reducer.step_locally()
            return False
        if self.skip:
            return self.explicit
        self.hook_new_parameters()
        self.reducer.synchronize()
        return True

    def end_step(self, shared: bool) -> None:
        """A step was made, on gradients of all ranks or on local ones."""
        self.explicit = False
        self.reducer.end_round()
        observation.step_done()
        if shared and not self.weight_check.over and self.reducer.active:
            process_set = self.reducer.rule.process_set
            self.weight_check.after_step(process_set, lambda: fingerprints(self.names), stacklevel=4)
