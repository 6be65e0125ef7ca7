# SPDX-License-Identifier: Apache-2.0
"""Adasum for optimizers: each rank steps by itself, and the steps are combined.

Adasum adds what is orthogonal and averages what is parallel, so it must see what the optimizer makes of a
gradient (the difference it makes to the parameters), not the gradient.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from horovod.common import handles
from horovod.common.calls import Call
from horovod.common.constants import Adasum
from horovod.common.process_sets import process_set_id
from horovod.common.verbs import ALLREDUCE
from horovod.torch._operation import Operation
from horovod.torch._reducer import GradientReducer
from horovod.torch.compression import for_parameter


class AdasumReducer(GradientReducer):
    """Leaves gradients alone and combines steps instead."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._combined: List[Tuple[str, torch.Tensor, Any]] = []

    def attach(self, groups: Sequence[Sequence[Tuple[str, torch.Tensor]]]) -> None:
        for group in groups:
            for name, param in group:
                self._combined.append((name, param, for_parameter(self.rule.compression, name, param)))

    def synchronize(self) -> None:
        """Nothing: gradients stay local."""

    def step(
        self, inner: torch.optim.Optimizer, closure: Optional[Callable[[], Any]], *args: Any, **kw: Any
    ) -> Any:
        if not self.active or self.paused:
            return super().step(inner, closure, *args, **kw)
        with torch.no_grad():
            starts = [param.detach().clone() for _, param, _ in self._combined]
        result = super().step(inner, closure, *args, **kw)
        with torch.no_grad():
            self._combine(starts)
        return result

    def _combine(self, starts: List[torch.Tensor]) -> None:
        set_id = process_set_id(self.rule.process_set)
        started = []
        for (name, param, compressor), start in zip(self._combined, starts):
            wire, context = compressor.compress(param.detach() - start)
            call = Call(ALLREDUCE, self.name_for(f"{name}.delta"), set_id, Adasum)
            started.append((Operation(call, (wire,), in_place=True).start(), context))
        for (_, param, compressor), start, (handle, context) in zip(self._combined, starts, started):
            param.copy_(start.add_(compressor.decompress(handles.synchronize(handle), context)))
