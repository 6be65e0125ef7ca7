# SPDX-License-Identifier: Apache-2.0
"""The exceptions this package raises.

RuntimeError
 ├─ HorovodInternalError       a collective failed, a peer died, or the job was shut down; elastic training
 │   │                         restores the last commit and starts again
 │   ├─ RanksDisagree          ... because ranks asked for different things: the script's fault, trying again
 │   │                         does not help
 │   └─ WorkerRemoved          the elastic job goes on without this worker
 └─ HostsUpdatedInterrupt      the set of hosts changed; elastic training re-forms the job
ImportError
 └─ HorovodVersionMismatchError  a framework's version does not fit
Exception
 └─ TimeoutException           a step of starting something took too long

Wrong arguments are ValueError or TypeError, as everywhere in Python.
"""

from __future__ import annotations

from typing import Optional

from horovod.common.constants import INVALID, OK, PRECONDITION


class HorovodInternalError(RuntimeError):
    """A collective failed on this rank; the text names the tensor, the rank and the host concerned."""


class RanksDisagree(HorovodInternalError):
    """Ranks disagree about a tensor (shape, type, operation); the text says who sent what."""


class WorkerRemoved(HorovodInternalError):
    """The driver of an elastic job has no place for this worker any more; the text says why."""


class HostsUpdatedInterrupt(RuntimeError):
    """Raised by `State.commit` and `State.check_host_updates` when hosts were added or removed.

    Args:
        skip_sync: hosts were only removed, so every remaining rank already has the current state.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__()
        self.skip_sync = skip_sync


class TimeoutException(Exception):
    """A step took too long; the text says which."""


class HorovodVersionMismatchError(ImportError):
    """A framework was found in a version that cannot be used."""

    def __init__(self, name: str, version: str, installed_version: Optional[str]) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version


def get_version_mismatch_message(name: str, version: str, installed_version: Optional[str]) -> str:
    """The text of a version mismatch: what was expected and what is there."""
    return (
        f"Framework {name} installed with version {installed_version} but found version {version}.\n"
        f"This build of Horovod works with {name} {installed_version}.\n"
        f"Install that version, or a release of Horovod that supports {version}."
    )


def raise_for(status: int, text: str) -> None:
    """Raises the exception of a failed status of the engine: ValueError for a wrong argument, else
    HorovodInternalError."""
    if status == OK:
        return
    if status == INVALID:
        raise ValueError(text)
    if status == PRECONDITION and text != NOT_INITIALIZED:
        raise RanksDisagree(text)
    raise HorovodInternalError(text)


NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."
FORKED = (
    "Horovod was initialized in the parent of this forked process; a forked child has no engine of its own. "
    "Call Horovod only from the process that called hvd.init(), or start workers with the 'spawn' method."
)
