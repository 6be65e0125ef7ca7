# SPDX-License-Identifier: Apache-2.0
"""Small blocking calls that all ranks know need no plan, and mix with everything that does."""

from __future__ import annotations

import pytest
from world import run_world, shared_world

LAYOUTS = [
    (2, None),
    (2, "localhost:1,127.0.0.1:1"),
    (3, "localhost:2,127.0.0.1:1"),
    (3, "localhost:1,127.0.0.1:1,127.0.0.2:1"),
]
over_hosts = pytest.mark.parametrize("size, hosts", LAYOUTS)


def small_calls(count):
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    wrong = 0
    before = 0
    for i in range(count + 3):
        if i == 3:
            before = hvd.metrics()["plans"]
        for dtype, elements in ((np.float32, 1), (np.int64, 300), (np.float16, 0)):
            name = f"small.{np.dtype(dtype).name}"
            got = hvd.allreduce(np.full(elements, hvd.rank() + 1, dtype), op=hvd.Sum, name=name)
            wrong += not (got == hvd.size() * (hvd.size() + 1) // 2).all()
        hvd.barrier()
    return wrong, hvd.metrics()["plans"] - before


@over_hosts
def test_they_are_right_and_most_need_no_plan(size, hosts):
    """Ranks that wait longer than a wait spins take the plan: many do while the machine is busy."""
    world, seen = shared_world(size, hosts=hosts), []
    while not seen or seen[-1] >= 4 * 250 / 2:
        assert len(seen) < 20, seen
        results = world.run(small_calls, 250)
        assert [wrong for wrong, _ in results] == [0] * size
        seen.append(max(plans for _, plans in results))


def mixed_calls():
    """What else may happen between two of them."""
    import numpy as np

    import horovod.numpy as hvd
    from horovod.common.exceptions import HorovodInternalError

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    ones = np.ones(4, np.float32)
    faults = []

    def small():
        for _ in range(5):
            if not (hvd.allreduce(ones, op=hvd.Sum, name="mixed") == size).all():
                faults.append("sum")

    small()
    for turn in range(size):
        try:  # one comes with another shape
            hvd.allreduce(np.ones(5 if rank == turn else 4, np.float32), op=hvd.Sum, name="mixed")
            faults.append("no error")
        except HorovodInternalError as error:
            if "mixed" not in str(error):
                faults.append(str(error))
        small()
        # One goes ahead without waiting, and one of them with another name first.
        handle = hvd.allreduce_async(ones, op=hvd.Sum, name="mixed" if rank == turn else "other")
        if rank != turn:
            hvd.allreduce(ones, op=hvd.Sum, name="mixed")
            hvd.synchronize(handle)
        else:
            hvd.allreduce(ones, op=hvd.Sum, name="other")
            hvd.synchronize(handle)
        small()
        if rank != turn:  # one has no more data
            for _ in range(3):
                if not (hvd.allreduce(ones, op=hvd.Sum, name="mixed") == size - 1).all():
                    faults.append("joined")
        hvd.join()
        small()
    return faults


@over_hosts
def test_they_mix_with_everything_else(size, hosts):
    assert shared_world(size, hosts=hosts).run(mixed_calls) == [[]] * size


def leave_after_the_last_call(times):
    import numpy as np

    import horovod.numpy as hvd

    for _ in range(times):
        hvd.init()
        for _ in range(3):
            hvd.allreduce(np.ones(1), name="last")
        hvd.shutdown()
    return times


def test_who_leaves_right_after_a_call_spoils_it_for_nobody():
    """Its goodbye may be heard before the end of the call, which comes another way."""
    assert run_world(leave_after_the_last_call, 4, args=(60,), hosts="localhost:2,127.0.0.1:2") == [60] * 4
