# SPDX-License-Identifier: Apache-2.0
"""What nobody waits for any more: the memory of submissions that were given up before they were complete."""

from __future__ import annotations

from typing import Any, Dict

from horovod.common import _native

# handle -> the memory it uses. There is no lock: a signal handler may submit, and so get here, while its own
# thread is here already. Each operation on the dictionary is atomic.
abandoned: Dict[int, Any] = {}


def abandon(handle: int, *keep: Any) -> None:
    """Forgets a handle that may not be complete: `keep` stays alive until the engine is done with it."""
    lib = _native.lib()
    if lib.hvd_poll(handle) != 0:
        lib.hvd_release(handle)
    else:
        abandoned[handle] = keep


def sweep() -> None:
    """Lets go of what was abandoned and has completed since."""
    lib = _native.lib()
    for handle in list(abandoned):
        if lib.hvd_poll(handle) != 0 and abandoned.pop(handle, None) is not None:
            lib.hvd_release(handle)


def forget_all() -> None:
    """Called after the engine stopped: nothing is in flight any more."""
    abandoned.clear()
