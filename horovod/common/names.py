# SPDX-License-Identifier: Apache-2.0
"""The names by which ranks match their collectives.

    wire_name("allreduce", "weight")    -> "allreduce.weight"
    wire_name("allreduce", None)        -> "allreduce.noname.7"
    member_names("grouped_allreduce.g", 2) -> ["grouped_allreduce.g_1of2", "grouped_allreduce.g_2of2"]

Unnamed operations are numbered by one counter per process set, so the members of a set must issue them in
the same order; what a rank does in sets of its own does not matter to the others.
"""

from __future__ import annotations

import itertools
from typing import Dict, Iterator, List, Optional

_counter = itertools.count(1)
_counters_of_sets: Dict[int, Iterator[int]] = {}


def reset() -> None:
    """Starts counting at 1 again; called by init, shutdown and join, so that all ranks agree."""
    global _counter
    _counter = itertools.count(1)
    _counters_of_sets.clear()


def forget_set(process_set: int) -> None:
    """Restarts a set's numbering; called where a set is registered, since ids are used again."""
    _counters_of_sets.pop(process_set, None)


def wire_name(prefix: str, name: Optional[str], process_set: int = 0) -> str:
    """The name sent to the other ranks. Only unnamed operations take a number of their set."""
    if name is not None:
        return f"{prefix}.{name}"
    if process_set == 0:
        number = next(_counter)
    else:
        number = next(_counters_of_sets.setdefault(process_set, itertools.count(1)))
    return f"{prefix}.noname.{number}"


def member_names(base: str, count: int) -> List[str]:
    """The names of the members of a group."""
    return [f"{base}_{i}of{count}" for i in range(1, count + 1)]


def encoded(name: str) -> bytes:
    """A name as the engine takes it. Raises ValueError for one that a C string cannot hold."""
    try:
        text = name.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"The name {name!r} cannot be sent: it is not valid Unicode.") from None
    if b"\0" in text:
        raise ValueError(f"The name {name!r} cannot be sent: it contains a NUL character.")
    return text
