# SPDX-License-Identifier: Apache-2.0
"""The collectives on tensors, each described once.

Front ends, names on the wire, checks of arguments, gradients and the reference are made from these rows. The
public functions with their signatures are written out of them by scripts/generate_verbs.py; what a row's
gradient does is in gradients.py.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Dict, NamedTuple, Optional, Tuple

from horovod.common import constants
from horovod.common.constants import Adasum, Average, Max, Min, Product, Sum


class Result(enum.Enum):
    """What the output of a collective looks like beside its input."""

    SAME = "the input's shape"
    GATHERED = "the rows of all members; how many is known when the ranks have met"
    EXCHANGED = "the rows that all members sent here, and how many came from each; known when they have met"
    SCATTERED = "this member's share of the rows"


class Argument(NamedTuple):
    """A public argument, as it stands in signatures and in the reference."""

    name: str
    type: str
    default: Optional[str]  # as written in a signature; None: it must be given
    doc: str


_AVERAGE = Argument("average", "Optional[bool]", "None", "former `op`: True is Average, False is Sum.")
_NAME = Argument("name", "Optional[str]", "None",
                 "matched across the ranks; unnamed operations are matched by their order.")  # fmt: skip
_OP = Argument("op", "Optional[int]", "None", "Average (default), Sum, Adasum, Min, Max or Product.")
_SCATTER_OP = Argument("op", "int", "Average", "Average or Sum.")
_PRESCALE = Argument("prescale_factor", "float", "1.0", "multiplies the tensor before the reduction.")
_POSTSCALE = Argument("postscale_factor", "float", "1.0", "multiplies the result.")
_ROOT = Argument("root_rank", "int", None, "the sender, a global rank also with a process set.")
_SPLITS = Argument("splits", "Any", "None", "rows for each member; None sends each the same number.")
_SET = Argument("process_set", "ProcessSet", "global_process_set", "the ranks that take part.")


@dataclass(frozen=True, eq=False)
class Verb:
    """One row of the table.

    Attributes:
        name: of the public functions and, as a prefix, of the operations on the wire.
        kind: the engine's number for it.
        arguments: what the public functions take after their tensor; the others are refused by Python.
        result: the shape of the output.
        gradient: the verb that brings the output's gradient back to the input; see gradients.py.
        reductions: what `op` may be; none for verbs that only move elements.
        in_place: the result may be written over the tensor, so there are forms that do.
        grouped: there are forms for several tensors that are handled as one.
        summary: the first line of the documentation.
        returns: what the result is, if that needs saying.
    """

    name: str
    kind: int
    arguments: Tuple[Argument, ...]
    result: Result
    gradient: str
    summary: str
    returns: str = ""
    reductions: Tuple[int, ...] = ()
    in_place: bool = False
    grouped: bool = True

    @property
    def title(self) -> str:
        """As error messages start, e.g. Allreduce."""
        return self.name.capitalize()

    @property
    def by_rows(self) -> bool:
        """Whether it works along the first dimension, so that a tensor without one is refused."""
        return self.result is not Result.SAME

    def prefix(self, grouped: bool = False) -> str:
        """What the names on the wire start with, e.g. grouped_allreduce."""
        return f"grouped_{self.name}" if grouped else self.name


ALLREDUCE = Verb(
    "allreduce",
    constants.ALLREDUCE,
    (_AVERAGE, _NAME, _OP, _PRESCALE, _POSTSCALE, _SET),
    Result.SAME,
    "allreduce",
    "Reduces a tensor over the ranks, element by element; all of them get the result.",
    reductions=(Average, Sum, Adasum, Min, Max, Product),
    in_place=True,
)
ALLGATHER = Verb(
    "allgather",
    constants.ALLGATHER,
    (_NAME, _SET),
    Result.GATHERED,
    "allreduce",
    "Concatenates the ranks' tensors along the first dimension, which may differ from rank to rank.",
)
BROADCAST = Verb(
    "broadcast",
    constants.BROADCAST,
    (_ROOT, _NAME, _SET),
    Result.SAME,
    "allreduce",
    "Gives every rank the root's tensor.",
    in_place=True,
    grouped=False,
)
ALLTOALL = Verb(
    "alltoall",
    constants.ALLTOALL,
    (_SPLITS, _NAME, _SET),
    Result.EXCHANGED,
    "alltoall",
    "Sends each rank a slice of the first dimension and concatenates what comes from all, in rank order.",
    returns="The received rows; with `splits`, also how many came from each member (int32).",
    grouped=False,
)
REDUCESCATTER = Verb(
    "reducescatter",
    constants.REDUCESCATTER,
    (_NAME, _SCATTER_OP, _SET, _PRESCALE, _POSTSCALE),
    Result.SCATTERED,
    "allgather",
    "Reduces a tensor and leaves each rank its share of the rows; the first ranks get what does not divide.",
    reductions=(Average, Sum),
)

VERBS: Dict[str, Verb] = {
    verb.name: verb for verb in (ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER)
}


def scattered_rows(rows: int, members: int, position: int) -> int:
    """Rows that reducescatter leaves with one member: an even share, the first ones get one more."""
    return rows // members + (1 if position < rows % members else 0)
