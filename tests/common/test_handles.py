# SPDX-License-Identifier: Apache-2.0
"""Calls under way: one table for all front ends, and memory that stays until the engine is done with it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

import numpy as np
import pytest
from tests_support import shared_world

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def shared_numbers() -> None:
    import torch

    import horovod.numpy
    import horovod.torch

    numbers = [
        horovod.numpy.allreduce_async(np.ones(2), op=horovod.numpy.Sum, name="of numpy"),
        horovod.torch.allreduce_async(torch.ones(2), op=horovod.torch.Sum, name="of torch"),
    ]
    assert numbers[0] != numbers[1]
    # Either front end synchronizes what the other has started.
    total = float(horovod.numpy.size())
    assert horovod.numpy.synchronize(numbers[1]).tolist() == [total, total]
    assert horovod.torch.synchronize(numbers[0]).tolist() == [total, total]


def test_front_ends_share_one_table():
    pytest.importorskip("torch")
    shared_world(2).run(shared_numbers)


def initialised_again() -> None:
    import gc
    import time

    import horovod.numpy as hvd

    ones = np.ones(1 << 20, np.float32)
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(ones, op=hvd.Sum, name="under way")
        del ones
        hvd.init()
        gc.collect()
        assert not hvd.poll(handle)  # the other rank is told to go on below
        hvd.broadcast_object(None, 0, name="go on")
        assert (hvd.synchronize(handle) == hvd.size()).all()
    else:
        hvd.broadcast_object(None, 0, name="go on")
        time.sleep(0.05)
        assert (hvd.allreduce(ones, op=hvd.Sum, name="under way") == hvd.size()).all()


def test_what_is_under_way_survives_a_second_init():
    shared_world(2).run(initialised_again)


def interrupted() -> None:
    import horovod.numpy as hvd
    from horovod.common import _calls

    handle = hvd.allreduce_async(np.ones(3), op=hvd.Sum, name="interrupted")
    original = _calls.finish

    def press_ctrl_c(submission: int) -> None:
        raise KeyboardInterrupt

    _calls.finish = press_ctrl_c
    try:
        with pytest.raises(KeyboardInterrupt):
            hvd.synchronize(handle)
    finally:
        _calls.finish = original
    assert hvd.synchronize(handle).tolist() == [hvd.size()] * 3
    with pytest.raises(ValueError, match=f"Handle {handle} was not created or has been cleared."):
        hvd.synchronize(handle)


def test_an_interrupted_wait_can_be_taken_up_again():
    shared_world(2).run(interrupted)


def kept_while_under_way() -> None:
    import time

    import horovod.numpy as hvd
    from horovod.common import _native, engine

    class Memory:
        pass

    if hvd.rank() == 0:
        memory = Memory()
        seen = weakref.ref(memory)
        array = np.ones(10, np.float32)
        address = array.ctypes.data
        request = engine.request(0, "allreduce.kept", 7, (10,), address, address, op=hvd.Sum)
        handle = engine.submit([request])
        engine.abandon(handle, (memory, array))
        del memory
        gc.collect()
        assert seen() is not None  # rank 1 has not even begun
        hvd.barrier()
        hvd.barrier()
        while handle in engine.abandoned and _native.lib().hvd_poll(handle) == 0:
            time.sleep(0.01)  # the barrier needs no thread of the engine's, which may be later
        hvd.allreduce(1.0, name="sweeps", op=hvd.Sum)
        hvd.synchronize(hvd.allreduce_async(1.0, name="sweeps too", op=hvd.Sum))
        gc.collect()
        assert seen() is None
    else:
        hvd.barrier()
        hvd.allreduce(np.ones(10, np.float32), op=hvd.Sum, name="kept")
        hvd.barrier()
        hvd.allreduce(1.0, name="sweeps", op=hvd.Sum)
        hvd.synchronize(hvd.allreduce_async(1.0, name="sweeps too", op=hvd.Sum))


def test_abandoned_memory_stays_until_the_engine_is_done():
    shared_world(2).run(kept_while_under_way)


SUBMITS_IN_A_SIGNAL_HANDLER = """
import signal
import numpy as np
import horovod.numpy as hvd
from horovod.common import _native, engine

hvd.init()
results = []
interrupted = []


def handler(signum, frame):
    results.append(hvd.synchronize(hvd.allreduce_async(np.ones(2), name="in the handler")).tolist())


signal.signal(signal.SIGUSR1, handler)
array = np.ones(1, np.float32)
request = engine.request(0, "allreduce.abandoned", 7, (1,), array.ctypes.data, array.ctypes.data)
handle = engine.submit([request])
engine.wait(handle)
engine.abandoned[handle] = (array,)
library = _native.lib()


class Interrupting:
    '''The engine's library; a signal arrives while somebody looks at what was abandoned.'''

    def __getattr__(self, name):
        return getattr(library, name)

    def hvd_poll(self, handle):
        if not interrupted:
            interrupted.append(handle)
            signal.raise_signal(signal.SIGUSR1)
        return library.hvd_poll(handle)


engine._native.lib = lambda: Interrupting()
print(hvd.synchronize(hvd.allreduce_async(np.ones(3), name="interrupted")).tolist(), results)
"""


def test_a_signal_handler_may_submit_while_abandoned_calls_are_swept():
    done = subprocess.run(
        [sys.executable, "-c", SUBMITS_IN_A_SIGNAL_HANDLER],
        env={**os.environ, "PYTHONPATH": ROOT}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split("\n")[0] == "[1.0, 1.0, 1.0] [[1.0, 1.0]]", done.stderr
