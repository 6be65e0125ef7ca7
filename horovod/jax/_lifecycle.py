# SPDX-License-Identifier: Apache-2.0
"""init and shutdown, with an eye on programs that jax is still running in the background."""

from __future__ import annotations

import atexit
import functools
import sys

import jax

from horovod.common.basics import basics

init = basics.init


def shutdown() -> None:
    """Leaves the job, after the programs dispatched so far. A later `init` starts anew."""
    if basics.is_initialized():
        jax.effects_barrier()  # type: ignore[no-untyped-call]
    basics.shutdown()


def _wait_unless_failed() -> None:
    if not hasattr(sys, "last_type"):  # after an exception there is nothing worth waiting for
        jax.effects_barrier()  # type: ignore[no-untyped-call]


@functools.cache
def _prepare() -> None:
    # Registered after the engine's own exit handler, so it runs before it: a last step that is still running
    # would otherwise fail on all ranks.
    atexit.register(_wait_unless_failed)
    # Gathered shapes and ranks are part of compiled programs; a new world must compile them anew.
    basics.at_shutdown(jax.clear_caches)


basics.at_init(_prepare)
if basics.is_initialized():  # by another front end
    _prepare()
