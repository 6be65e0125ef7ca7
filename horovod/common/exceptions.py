# SPDX-License-Identifier: Apache-2.0
"""The exceptions this package raises.

RuntimeError
 ├─ HorovodInternalError       a collective failed, a peer died, or the job was shut down; elastic training
 │                             restores the last commit and starts again
 └─ HostsUpdatedInterrupt      the set of hosts changed; elastic training re-forms the job
ImportError
 └─ HorovodVersionMismatchError  a framework's version does not fit

Wrong arguments are ValueError or TypeError, as everywhere in Python.
"""

from __future__ import annotations

from typing import Optional

from horovod.common.constants import INVALID, OK


class HorovodInternalError(RuntimeError):
    """A collective failed on this rank; the text names the tensor, the rank and the host concerned."""


class HostsUpdatedInterrupt(RuntimeError):
    """Raised by `State.commit` and `State.check_host_updates` when hosts were added or removed.

    Args:
        skip_sync: hosts were only removed, so every remaining rank already has the current state.
    """

    def __init__(self, skip_sync: bool) -> None:
        super().__init__()
        self.skip_sync = skip_sync


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
    raise HorovodInternalError(text)


NOT_INITIALIZED = "Horovod has not been initialized; use hvd.init()."
FORKED = (
    "Horovod was initialized in the parent of this forked process; a forked child has no engine of its own. "
    "Call Horovod only from the process that called hvd.init(), or start workers with the 'spawn' method."
)
