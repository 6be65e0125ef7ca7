# SPDX-License-Identifier: Apache-2.0
"""init and shutdown, with an eye on operations that MXNet is still running in the background."""

from __future__ import annotations

import atexit
import functools
import sys
from typing import Sequence, Union

import mxnet as mx

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet


def init(comm: object = None, process_sets: Union[None, str, Sequence[ProcessSet]] = None) -> None:
    """Joins the job this process was launched into; see `horovod.common.basics.HorovodBasics.init`."""
    basics.init(comm, process_sets)
    _wait_at_exit()


def shutdown() -> None:
    """Leaves the job, after the operations pushed so far. A later `init` starts anew."""
    if basics.is_initialized():
        mx.nd.waitall()
    basics.shutdown()


@functools.lru_cache(maxsize=None)
def _wait_at_exit() -> None:
    # Registered after the engine's own exit handler, so it runs before it: a last update that is still running
    # would otherwise fail on all ranks. After an exception there is nothing worth waiting for.
    atexit.register(lambda: None if hasattr(sys, "last_type") else mx.nd.waitall())
