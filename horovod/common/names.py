# SPDX-License-Identifier: Apache-2.0
"""The names by which ranks match their collectives.

    wire_name("allreduce", "weight")    -> "allreduce.weight"
    wire_name("allreduce", None)        -> "allreduce.noname.7"
    member_names("grouped_allreduce.g", 2) -> ["grouped_allreduce.g_1of2", "grouped_allreduce.g_2of2"]

Unnamed operations are numbered by one counter per process, so ranks must issue them in the same order.
"""

from __future__ import annotations

import itertools
from typing import List, Optional

_counter = itertools.count(1)


def next_number() -> int:
    """The number of the next operation of this process."""
    return next(_counter)


def reset() -> None:
    """Starts counting at 1 again; called by init and shutdown, so that all ranks agree."""
    global _counter
    _counter = itertools.count(1)


def wire_name(prefix: str, name: Optional[str]) -> str:
    """The name sent to the other ranks. Every call consumes a number, named or not."""
    number = next(_counter)
    return f"{prefix}.{name}" if name is not None else f"{prefix}.noname.{number}"


def member_names(base: str, count: int) -> List[str]:
    """The names of the members of a group."""
    return [f"{base}_{i}of{count}" for i in range(1, count + 1)]
