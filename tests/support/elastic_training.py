# SPDX-License-Identifier: Apache-2.0
"""An elastic training of eight batches, in which rank 1 may do something on the way."""

from __future__ import annotations

import contextlib
import os
import time


def train(at=None, act=None, everywhere=False, whole=2, alone=None):
    """(rank, the sizes of the worlds it saw or was told of, batches).

    Args:
        at: the batch in which rank 1 calls `act`.
        everywhere: whether all ranks call it, newcomers as well.
        whole: after an act, batches go on until there are as many ranks again.
        alone: a file that the act may leave; who starts then waits until fewer ranks have trained without it.
    """
    import numpy as np

    import horovod.numpy as hvd
    from horovod.common.elastic import ObjectState, run_fn

    while alone and os.path.exists(alone):
        time.sleep(0.05)
    hvd.init()
    print(f"pid {os.getpid()}", flush=True)
    state = ObjectState(hvd.broadcast_object, hvd.rank, batch=0, sizes=[], acted=False)
    deadline = time.monotonic() + 300

    def loop(state):
        def complete():
            if hvd.size() != (state.sizes or [0])[-1]:
                state.sizes = [*state.sizes, hvd.size()]
            if alone and hvd.size() < whole:
                with contextlib.suppress(FileNotFoundError):
                    os.remove(alone)
            enough = at is None or hvd.size() >= whole or time.monotonic() > deadline
            return state.batch >= 8 and bool(hvd.allreduce(np.array([float(enough)]), op=hvd.Min)[0])

        while not complete():
            if at is not None and state.batch >= at and (everywhere or not state.acted):
                state.acted = True
                state.commit()
                if hvd.rank() == 1 or everywhere:
                    act()
            assert hvd.allreduce(np.ones(1), op=hvd.Sum)[0] == hvd.size()
            state.batch += 1
            state.commit()
            time.sleep(0.02)  # a batch takes a while
        return hvd.rank(), state.sizes, state.batch

    def reset():
        hvd.shutdown()
        hvd.init()

    return run_fn(loop, reset)(state)
