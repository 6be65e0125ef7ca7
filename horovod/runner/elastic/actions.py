# SPDX-License-Identifier: Apache-2.0
"""What the supervisor of an elastic job asks its driver to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Union

from horovod.runner.elastic.placement import Candidate


@dataclass(frozen=True)
class OpenHost:
    """Make a host ready for workers."""

    host: str


@dataclass(frozen=True)
class CloseHost:
    """Let go of a host, with whatever still runs there."""

    host: str


@dataclass(frozen=True)
class StartWorker:
    """Start a process in a slot of a host."""

    number: int
    name: str
    host: str
    slot: int


@dataclass(frozen=True)
class EndWorker:
    """End a process."""

    number: int
    host: str


@dataclass(frozen=True)
class Assign:
    """Open this generation of the world: these workers, in the order of their ranks."""

    generation: int
    ordered: List[Candidate]


@dataclass(frozen=True)
class Dismiss:
    """The job goes on without this worker, which is told so when it asks for a place."""

    name: str
    reason: str


@dataclass(frozen=True)
class Lost:
    """A worker's process is gone: nobody need wait for it."""

    name: str
    cause: str


@dataclass(frozen=True)
class Notify:
    """Tell rank 0 of a generation that hosts were added or removed (HostUpdateResult)."""

    name: str
    generation: int
    change: int


@dataclass(frozen=True)
class Say:
    """Tell people and machines what has happened.

    level: the least verbosity at which people want to read it.
    """

    kind: str
    text: str
    facts: Dict[str, Any] = field(default_factory=dict)
    level: int = 0


Action = Union[OpenHost, CloseHost, StartWorker, EndWorker, Assign, Dismiss, Lost, Notify, Say]
