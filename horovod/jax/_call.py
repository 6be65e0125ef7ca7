# SPDX-License-Identifier: Apache-2.0
"""What one collective does, apart from its tensors: hashable, so that it can be a static parameter."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, Tuple

from horovod.common.constants import (
    ALLGATHER,
    ALLTOALL,
    KIND_NAME,
    REDUCESCATTER,
    Sum,
)

# Unnamed collectives of compiled programs share one name. They are ordered by the program and at most one
# is in flight, so it cannot clash; it does not depend on the order in which ranks happen to trace; and ranks
# that have come out of step meet under it and get an error that says how they differ, instead of waiting.
COMPILED_NAME = "jax.jit"


class Call(NamedTuple):
    """One collective over one or more tensors (several make an atomic group)."""

    kind: int
    name: Optional[str] = None
    op: int = Sum
    root: int = -1
    splits: Optional[Tuple[int, ...]] = None
    prescale: float = 1.0
    postscale: float = 1.0
    process_set: int = 0
    members: int = 1  # size of the process set
    position: int = 0  # this rank's place in it
    rows: Optional[int] = (
        None  # allgather in a program: rows of the output, if not members * rows of the input
    )

    def prefix(self, count: int) -> str:
        """First part of the name on the wire, e.g. grouped_allreduce."""
        return ("grouped_" if count > 1 else "") + KIND_NAME[self.kind]

    def compiled_name(self, count: int) -> str:
        """The name on the wire when compiled into a program."""
        return COMPILED_NAME if self.name is None else f"{self.prefix(count)}.{self.name}"

    def for_gradient(self, **changes: object) -> Call:
        """The collective of the backward pass: as this one, under a name of its own."""
        name = None if self.name is None else f"{self.name}.grad"
        return self._replace(name=name, **changes)  # type: ignore[arg-type]

    def output_shape(self, shape: Sequence[int]) -> Tuple[int, ...]:
        """Shape of the output inside a compiled program, where it must follow from what this rank knows."""
        if self.kind == ALLGATHER:
            rows = shape[0] * self.members if self.rows is None else self.rows
            return (rows, *shape[1:])
        if self.kind == REDUCESCATTER:
            return (scattered_rows(shape[0], self.members, self.position), *shape[1:])
        if self.kind == ALLTOALL and self.splits is not None:
            if len(set(self.splits)) > 1:
                raise ValueError(
                    "alltoall inside jit needs equal splits: the shape of the output must be known when the "
                    "program is compiled. Call it outside of jit, or pad the tensor."
                )
            return (self.splits[0] * self.members, *shape[1:])
        return tuple(shape)


def scattered_rows(rows: int, members: int, position: int) -> int:
    """Rows that reducescatter leaves with one member: an even share, the first ones get one more."""
    return rows // members + (1 if position < rows % members else 0)
