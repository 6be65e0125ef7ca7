# SPDX-License-Identifier: Apache-2.0
"""Results in memory that was used before: never while anybody can still see it."""

from __future__ import annotations

import numpy as np
import pytest
from tests_support import run_world, shared_world


def used_again():
    import horovod.numpy as hvd

    x = np.ones(2 << 20, np.float32)  # 8 MiB

    def address(result):
        return result.ctypes.data

    result = hvd.allreduce(x, op=hvd.Sum, name="again")
    first = address(result)
    del result
    result = hvd.allreduce(x, op=hvd.Sum, name="again")
    same = address(result) == first and bool((result == hvd.size()).all())
    small = hvd.allreduce(np.ones(8), op=hvd.Sum, name="small")
    return same, result.flags.writeable, small.flags.owndata


@pytest.mark.parametrize("size", [1, 2])
def test_memory_of_a_result_that_is_gone_serves_the_next(size):
    assert shared_world(size).run(used_again) == [(True, True, True)] * size


def seen():
    """What can still be seen of a result must stay: by a view, a buffer, another type, a copy, a pickle."""
    import gc
    import pickle

    import horovod.numpy as hvd

    n, x = hvd.size(), np.ones(2 << 20, np.float32)

    def result(name):
        return hvd.allreduce(x, op=hvd.Sum, name=name)

    ways = {
        "view": lambda r: r[5:2000:7],
        "reshaped view": lambda r: r.reshape(2, -1).T[3:5],
        "memoryview": memoryview,
        "other type": lambda r: r.view(np.uint32)[:4].view(np.float32),
        "pickle": lambda r: pickle.loads(pickle.dumps(r, 5)),
        "iterator": lambda r: iter(r[:100]),
        "array of it": lambda r: np.asarray(memoryview(r)),
    }
    kept = {name: way(result(f"seen.{name}")) for name, way in ways.items()}
    gc.collect()
    for i in range(2 * len(ways)):
        hvd.allreduce(x * 5, op=hvd.Sum, name="over")  # would write over what was given back too early
        if i % 3 == 0:
            hvd.allgather(x * 7, name="gather over")
            hvd.broadcast(x * 9, 0, name="broadcast over")
    return [name for name, what in kept.items() if {float(v) for v in np.asarray(list(what)).ravel()} != {n}]


@pytest.mark.parametrize("size", [1, 2])
def test_what_can_still_be_seen_is_not_written_over(size):
    assert shared_world(size).run(seen) == [[]] * size


def in_threads():
    """Each thread holds its last results while the others make and drop theirs."""
    import threading

    import horovod.numpy as hvd

    wrong = []

    def work(t):
        held = []
        for step in range(12):
            result = hvd.allreduce(np.full(1 << 20, t + step, np.float32), op=hvd.Sum, name=f"thread.{t}")
            held.append((result, hvd.size() * (t + step)))
            held = held[-2:]
            wrong.extend((t, step) for array, value in held if array[0] != value or array[-1] != value)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def test_threads_do_not_share_results():
    assert shared_world(2).run(in_threads) == [[]] * 2


def forked():
    import os

    import horovod.numpy as hvd

    x = np.ones(2 << 20, np.float32)
    result = hvd.allreduce(x, op=hvd.Sum, name="before")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if (result == 2).all() else 2
            result[:] = 99  # its own copy
            del result
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    later = hvd.allreduce(x, op=hvd.Sum, name="after")
    return status, bool((result == 2).all()), bool((later == 2).all())


def test_a_forked_child_leaves_the_parents_results_alone():
    assert shared_world(2).run(forked) == [(0, True, True)] * 2


def is_mapped(address):
    """Whether this process has memory there."""
    with open("/proc/self/maps") as maps:
        ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps]
    return any(low <= address < high for low, high in ranges)


def outlives():
    import horovod.numpy as hvd
    from horovod.common import _native

    hvd.init()
    x = np.ones(2 << 20, np.float32)
    result = hvd.allreduce(x, op=hvd.Sum, name="x")
    dropped = hvd.allreduce(x, op=hvd.Sum, name="x")
    address = dropped.ctypes.data
    del dropped
    hvd.shutdown()
    whole = bool((result == 2).all())
    mapped = is_mapped(address)
    del result  # after the engine is gone
    assert _native.lib().hvd_allocate(-1) is None
    return whole, mapped


def test_results_outlive_the_engine_and_what_is_kept_does_not():
    assert run_world(outlives, 2) == [(True, False)] * 2


def keeps_nothing():
    import horovod.numpy as hvd
    from horovod.common import config

    hvd.init()
    x = np.ones(2 << 20, np.float32)
    address = hvd.allreduce(x, op=hvd.Sum, name="x").ctypes.data
    mapped = is_mapped(address)
    hvd.shutdown()
    return config.get("output_pool_bytes"), mapped


def test_the_setting_can_turn_it_off():
    assert run_world(keeps_nothing, 2, env={"HOROVOD_OUTPUT_POOL_BYTES": "0"}) == [(0, False)] * 2
