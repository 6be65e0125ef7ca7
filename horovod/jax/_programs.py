# SPDX-License-Identifier: Apache-2.0
"""Programs that jax builds and runs in the background: what waits for them, and what cannot be in one."""

from __future__ import annotations

import jax

from horovod.common import barriers
from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.jax._compat import forget_failed_programs, in_program


def finish() -> None:
    """Waits for the programs dispatched so far: they may hold collectives of this rank."""
    jax.effects_barrier()  # type: ignore[no-untyped-call]


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when all members of the process set have called it. Not available inside jit."""
    _refuse_inside("barrier")
    barriers.barrier(process_set)


def join() -> int:
    """Says that this rank has no more data, and waits until all ranks say so. Not available inside jit.

    Until then the other ranks' allreduces go on; this rank counts as zeros in them.

    Returns:
        The rank that joined last.
    """
    _refuse_inside("join")
    finish()
    return barriers.join()


def _refuse_inside(function: str) -> None:
    if in_program():
        raise RuntimeError(f"hvd.{function}() cannot be part of a jitted function; call it outside.")


# A last step that is still running when the engine stops would fail on all ranks.
basics.before_shutdown(finish)
# Gathered shapes and ranks are part of compiled programs; a new world must compile them anew.
basics.at_shutdown(jax.clear_caches)
basics.at_shutdown(forget_failed_programs)
