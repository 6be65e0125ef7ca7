# SPDX-License-Identifier: Apache-2.0
"""How the gradient of a collective's output comes back to its input: once for all frameworks.

    forward                     gradient of the input, from the gradient g of the output
    allreduce                   the same allreduce of g
    allgather                   this rank's rows of the average of g
    broadcast                   the average of g on the root, zero elsewhere
    alltoall                    alltoall of g by the received splits; zero for rows that went nowhere
    reducescatter Average/Sum   allgather of g, times the scale factors / and times the number of members

A framework's `Toolkit` says how its tensors are scaled, cut and sent. The gradient of a named operation is
named after it; that of an unnamed one is unnamed, and so must come in the same order everywhere.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Protocol, Sequence

from horovod.common.basics import basics
from horovod.common.calls import Call
from horovod.common.constants import Average, Sum
from horovod.common.members import place_in
from horovod.common.verbs import ALLGATHER, ALLREDUCE

Tensors = Sequence[Any]


class Toolkit(Protocol):
    """What a framework does with its tensors on the way back."""

    def run(self, call: Call, tensors: Tensors) -> List[Any]:
        """The outputs of a collective, differentiable themselves where the framework can."""

    def zeros(self, tensor: Any) -> Any:
        """Zeros like the tensor."""

    def scaled(self, tensor: Any, factor: float) -> Any:
        """The tensor times a number."""

    def own_rows(self, call: Call, gathered: Tensors, rows: Sequence[int]) -> List[Any]:
        """Of tensors with the rows of all members, the part that came from this one, which gave `rows`."""

    def padded(self, tensor: Any, rows: int) -> Any:
        """The tensor with zeros after it, so that it has `rows` rows."""


class Saved(NamedTuple):
    """What backward knows of the forward pass."""

    rows: Sequence[int]  # first dimensions of the inputs
    received: Any = None  # alltoall: rows that came from each member


def backward(toolkit: Toolkit, call: Call, gradients: Tensors, saved: Saved) -> List[Any]:
    """The gradients of a collective's inputs, from those of its outputs."""
    return _GRADIENTS[call.verb.name](toolkit, call, gradients, saved)


def _of_allreduce(toolkit: Toolkit, call: Call, gradients: Tensors, saved: Saved) -> List[Any]:
    return toolkit.run(call.for_gradient(), gradients)


def _of_allgather(toolkit: Toolkit, call: Call, gradients: Tensors, saved: Saved) -> List[Any]:
    averaged = toolkit.run(call.for_gradient(ALLREDUCE, op=Average), gradients)
    return toolkit.own_rows(call, averaged, saved.rows)


def _of_broadcast(toolkit: Toolkit, call: Call, gradients: Tensors, saved: Saved) -> List[Any]:
    averaged = toolkit.run(call.for_gradient(ALLREDUCE, op=Average), gradients)
    return averaged if basics.rank() == call.root else [toolkit.zeros(g) for g in averaged]


def _of_alltoall(toolkit: Toolkit, call: Call, gradients: Tensors, saved: Saved) -> List[Any]:
    returned = toolkit.run(call.for_gradient(splits=saved.received), gradients)
    return [toolkit.padded(g, rows) for g, rows in zip(returned, saved.rows)]


def _of_reducescatter(toolkit: Toolkit, call: Call, gradients: Tensors, saved: Saved) -> List[Any]:
    members = place_in(call.process_set)[0] if call.op == Sum else 1
    factor = call.prescale * call.postscale * members
    scaled = [g if factor == 1.0 else toolkit.scaled(g, factor) for g in gradients]
    return toolkit.run(call.for_gradient(ALLGATHER, rows=tuple(saved.rows)), scaled)


_GRADIENTS: Dict[str, Callable[[Toolkit, Call, Tensors, Saved], List[Any]]] = {
    "allreduce": _of_allreduce,
    "allgather": _of_allgather,
    "broadcast": _of_broadcast,
    "alltoall": _of_alltoall,
    "reducescatter": _of_reducescatter,
}
