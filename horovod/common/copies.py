# SPDX-License-Identifier: Apache-2.0
"""The front ends' own copies, as spans of the timeline: COPY_IN before a collective, COPY_OUT after it.

    dense, copied = copies.timed(np.ascontiguousarray, array)
    ...                                 # the name may be known only later
    copies.before("allreduce.x", copied)

Where no timeline is written, a copy costs one call of the engine more than it would without.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Optional, Tuple

from horovod.common import _native, names

# Seconds of the monotonic clock, as the engine counts them; None: there is no timeline.
Span = Optional[Tuple[float, float]]


def timed(copy: Callable[..., Any], *args: Any, **kw: Any) -> Tuple[Any, Span]:
    """Calls `copy`; returns what it returns, and when that was."""
    if not _native.lib().hvd_timeline_active():
        return copy(*args, **kw), None
    began = time.monotonic()
    made = copy(*args, **kw)
    return made, (began, time.monotonic())


def before(name: str, copied: Span) -> None:
    """The tensor of this name on the wire was copied before it was handed in."""
    if copied is not None:
        _native.lib().hvd_copied(names.encoded(name), 0, *copied)


def after(name: str, copied: Span) -> None:
    """The result of the tensor of this name was copied once it was there."""
    if copied is not None:
        _native.lib().hvd_copied(names.encoded(name), 1, *copied)
