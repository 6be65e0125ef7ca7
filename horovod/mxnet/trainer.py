# SPDX-License-Identifier: Apache-2.0
"""A gluon trainer that reduces gradients over the ranks."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any, Dict, List, Optional, Tuple, Type

import mxnet as mx

from horovod.common.constants import Sum
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.util import split_list
from horovod.mxnet.compression import Compression, Compressor
from horovod.mxnet.mpi_ops import allreduce_, grouped_allreduce_
from horovod.mxnet.optimizer import DistributedOptimizer


class DistributedTrainer(mx.gluon.Trainer):  # type: ignore[misc]
    """`gluon.Trainer` over all ranks: call `step(batch_size)` with this rank's batch size.

    Args:
        params: dict, list or ParameterDict of parameters.
        optimizer: name or `mx.optimizer.Optimizer`; a `DistributedOptimizer` is unwrapped.
        optimizer_params: options of the optimizer, if given by name.
        compression: e.g. `Compression.fp16`.
        gradient_predivide_factor: divide by this before the sum, and by size over this after it.
        prefix: put before the names of the gradients, to tell several trainers apart.
        num_groups: send the gradients in this many grouped operations; 0 sends each by itself.
        process_set: the ranks that take part; other ranks train by themselves.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Optional[Dict[str, Any]] = None,
        compression: Type[Compressor] = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: Optional[str] = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        assert prefix is None or isinstance(prefix, str)
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer does not take DistributedOptimizer as its optimizer. We have unwrapped "
                "it for you.",
                stacklevel=2,
            )
            factor = optimizer._gradient_predivide_factor / (optimizer._process_set.size() or 1)
            optimizer = optimizer._optimizer
            optimizer.rescale_grad /= factor  # the trainer applies its own
        super().__init__(_ordered(params), optimizer, optimizer_params=optimizer_params, kvstore=None)
        self._compression = compression
        self._prefix = prefix or ""
        self._num_groups = num_groups
        self._process_set = process_set
        self._gradient_predivide_factor = float(gradient_predivide_factor)
        self._scaled_for = 1
        if process_set.included():
            self._scale *= self._gradient_predivide_factor
            self.adapt()

    def adapt(self) -> None:
        """Averages over the ranks there are now: an elastic state calls it when their number has changed."""
        size = self._process_set.size() or 1
        self._scale *= self._scaled_for / size
        self._scaled_for = size

    def _allreduce_grads(self) -> None:
        if not self._process_set.included() or self._process_set.size() == 1:
            return
        options: Dict[str, Any] = {
            "op": Sum,
            "prescale_factor": 1.0 / self._gradient_predivide_factor,
            "process_set": self._process_set,
        }
        gradients = [(i, p.list_grad()[0]) for i, p in enumerate(self._params) if p.grad_req != "null"]
        sent = [(i, g, *self._compression.compress(g)) for i, g in gradients]
        if self._num_groups > 0:
            for n, group in enumerate(_by_dtype(sent, self._num_groups)):
                name = f"{self._prefix}{group[0][0]}:{self._prefix}{group[-1][0]}"
                grouped_allreduce_([tensor for _, _, tensor, _ in group], name=name, priority=-n, **options)
        else:
            for i, _, tensor, _ in sent:
                allreduce_(tensor, name=self._prefix + str(i), priority=-i, **options)
        for _, gradient, tensor, ctx in sent:
            if tensor is not gradient:
                gradient[:] = self._compression.decompress(tensor, ctx)


def _ordered(params: Any) -> Any:
    """The parameters in an order that all ranks share."""
    if isinstance(params, dict):
        return OrderedDict(params)
    if isinstance(params, (list, tuple)) and all(isinstance(p, mx.gluon.Parameter) for p in params):
        return sorted(params, key=lambda p: p.name)
    return params


def _by_dtype(sent: List[Tuple[Any, ...]], count: int) -> List[List[Tuple[Any, ...]]]:
    """The gradients in `count` consecutive groups, each cut further into groups of one type."""
    groups: List[List[Tuple[Any, ...]]] = []
    for part in split_list(sent, count):
        types: Dict[Any, List[Tuple[Any, ...]]] = OrderedDict()
        for entry in part:
            types.setdefault(entry[2].dtype, []).append(entry)
        groups.extend(types.values())
    return groups
