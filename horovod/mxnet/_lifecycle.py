# SPDX-License-Identifier: Apache-2.0
"""init and shutdown, with an eye on operations that MXNet is still running in the background."""

from __future__ import annotations

import atexit
import functools
import sys

import mxnet as mx

from horovod.common.basics import basics

init = basics.init


def shutdown() -> None:
    """Leaves the job, after the operations pushed so far. A later `init` starts anew."""
    if basics.is_initialized():
        mx.nd.waitall()
    basics.shutdown()


def _wait_unless_failed() -> None:
    if not hasattr(sys, "last_type"):  # after an exception there is nothing worth waiting for
        mx.nd.waitall()


@functools.cache
def _prepare() -> None:
    # Registered after the engine's own exit handler, so it runs before it: a last update still running
    # would otherwise fail on all ranks.
    atexit.register(_wait_unless_failed)


basics.at_init(_prepare)
if basics.is_initialized():  # by another front end
    _prepare()
