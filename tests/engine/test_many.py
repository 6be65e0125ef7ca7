# SPDX-License-Identifier: Apache-2.0
"""Many tensors, many threads, any order, big ones, and join."""

from __future__ import annotations

import numpy as np
import pytest
from tests_support import check_close, run_world, shared_world

SIZES = [2, 3]


def any_order():
    """Every rank submits the same thousands of tensors in an order of its own."""
    import random

    import horovod.numpy as hvd

    count, me, n = 3000, hvd.rank(), hvd.size()
    order = list(range(count))
    random.Random(me).shuffle(order)
    handles = {
        i: hvd.allreduce_async(np.full(i % 17 + 1, me + i, np.float32), op=hvd.Sum, name=f"t{i}")
        for i in order
    }
    random.Random(me + 100).shuffle(order)
    wrong = []
    for i in order:
        got = hvd.synchronize(handles[i])
        if got.shape != (i % 17 + 1,) or not (got == sum(range(n)) + n * i).all():
            wrong.append(i)
    return wrong


@pytest.mark.parametrize("size", SIZES)
def test_thousands_in_flight_in_any_order(size):
    assert shared_world(size).run(any_order) == [[]] * size


def mixed_order():
    """Different kinds of collectives submitted together, in an order of each rank's own."""
    import random

    import horovod.numpy as hvd

    me, n = hvd.rank(), hvd.size()
    jobs = []
    for i in range(60):
        x = np.arange(i + n, dtype=np.float64) + me
        jobs.append(("r", i, lambda i=i, x=x: hvd.allreduce_async(x, op=hvd.Sum, name=f"r{i}")))
        jobs.append(("g", i, lambda i=i, x=x: hvd.allgather_async(x[: me + 1], name=f"g{i}")))
        jobs.append(("b", i, lambda i=i, x=x: hvd.broadcast_async(x, i % n, name=f"b{i}")))
        jobs.append(("s", i, lambda i=i, x=x: hvd.reducescatter_async(x, op=hvd.Sum, name=f"s{i}")))
        jobs.append(("a", i, lambda i=i, x=x: hvd.alltoall_async(x[: n * (i // n)], name=f"a{i}")))
    random.Random(me * 7).shuffle(jobs)
    handles = [(kind, i, start()) for kind, i, start in jobs]
    results = {(kind, i): hvd.synchronize(handle) for kind, i, handle in handles}
    wrong = []
    import reference

    for i in range(60):
        inputs = [np.arange(i + n, dtype=np.float64) + r for r in range(n)]
        pairs = [
            (results["r", i], reference.allreduce(inputs)[me]),
            (results["g", i], reference.allgather([x[: r + 1] for r, x in enumerate(inputs)])[me]),
            (results["b", i], reference.broadcast(inputs, i % n)[me]),
            (results["s", i], reference.reducescatter(inputs, reference.SUM)[me]),
            (results["a", i][0], reference.alltoall([x[: n * (i // n)] for x in inputs])[me][0]),
        ]
        wrong += [check_close(got, want, f"{i}") for got, want in pairs]
    return [w for w in wrong if w]


@pytest.mark.parametrize("size, hosts", [(2, None), (3, None), (3, "localhost:2,127.0.0.1:1")])
def test_all_kinds_at_once_in_any_order(size, hosts):
    assert shared_world(size, hosts=hosts).run(mixed_order) == [[]] * size


def many_threads():
    import threading

    import horovod.numpy as hvd

    wrong = []

    def work(t):
        for i in range(100):
            got = hvd.allreduce(np.full(50, t + i, np.float32), op=hvd.Sum, name=f"thread{t}.{i % 5}")
            if not (got == hvd.size() * (t + i)).all():
                wrong.append((t, i))
            if i % 20 == 0:
                gathered = hvd.allgather(np.full(t + 1, hvd.rank(), np.int32), name=f"gather{t}.{i}")
                if len(gathered) != (t + 1) * hvd.size():
                    wrong.append((t, i, "gather"))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


@pytest.mark.parametrize("size", SIZES)
def test_many_threads_submit_at_once(size):
    assert shared_world(size).run(many_threads) == [[]] * size


def big(megabytes):
    import horovod.numpy as hvd

    me, n = hvd.rank(), hvd.size()
    count = megabytes * (1 << 20) // 4
    x = np.full(count, me + 1, np.float32)
    x[-1] = 7
    hvd.allreduce_(x, op=hvd.Sum, name="big")
    total = n * (n + 1) / 2
    right = [bool((x[:-1] == total).all()) and x[-1] == 7 * n]
    gathered = hvd.allgather(np.full(count // 2 + me, me, np.float32), name="big")
    at = 0
    for r in range(n):
        right.append(bool((gathered[at : at + count // 2 + r] == r).all()))
        at += count // 2 + r
    sent = hvd.broadcast(np.full(count, me, np.float32), 1, name="big")
    right.append(bool((sent == 1).all()))
    return right


@pytest.mark.parametrize("size, hosts", [(2, None), (3, None), (2, "localhost:1,127.0.0.1:1")])
def test_tensors_larger_than_any_buffer(size, hosts):
    for right in shared_world(size, hosts=hosts).run(big, 40):
        assert all(right)


def available_gib():
    with open("/proc/meminfo") as file:
        return int(next(line for line in file if line.startswith("MemAvailable")).split()[1]) / (1 << 20)


@pytest.mark.skipif(available_gib() < 12, reason="needs 12 GiB of free memory")
def test_tensors_over_two_gibibytes_and_two_billion_elements():
    def huge():
        import horovod.numpy as hvd

        hvd.init()
        x = np.ones((1 << 31) + 5, np.uint8)
        hvd.allreduce_(x, op=hvd.Sum, name="huge")
        right = [bool((x[:10] == 2).all()), bool((x[-10:] == 2).all()), int(x[1 << 30]) == 2]
        x[-1] = hvd.rank()
        hvd.broadcast_(x, 1, name="huge")
        right.append(int(x[-1]) == 1)
        half = x[: (1 << 30) + 9].copy()
        del x
        half[-1] = 10 + hvd.rank()
        gathered = hvd.allgather(half, name="huge")
        right.append(
            gathered.shape == ((1 << 31) + 18,) and gathered[(1 << 30) + 8] == 10 and gathered[-1] == 11
        )
        return right

    for right in run_world(huge, 2, timeout=400):
        assert all(right)


def uneven_batches():
    """Rank r has r + 2 batches; the others go on while the early ones have joined."""
    import horovod.numpy as hvd

    me, n = hvd.rank(), hvd.size()
    results = []
    for round_ in range(2):
        sums = []
        for step in range(me + 2):
            got = hvd.allreduce(np.ones(3, np.float32), op=hvd.Sum, name=f"step{step}")
            sums.append(got[0])
        last = hvd.join()
        want = [sum(1 for r in range(n) if r + 2 > step) for step in range(me + 2)]
        results.append((round_, sums == want or sums, last))
    return results


@pytest.mark.parametrize("size", SIZES)
def test_join_with_uneven_numbers_of_batches(size):
    results = shared_world(size).run(uneven_batches)
    for rank, rounds in enumerate(results):
        for _, right, last in rounds:
            assert right is True, (rank, right)
            assert last == results[0][0][2] or 0 <= last < size
    assert len({tuple(last for _, _, last in rounds) for rounds in results}) == 1


def others_with_join():
    import horovod.numpy as hvd

    errors = {}
    if hvd.rank() == 0:
        hvd.join()
    else:
        x = np.ones((hvd.size(), 2), np.float32)
        calls = {
            "Allgather": lambda: hvd.allgather(x, name="with join"),
            "Alltoall": lambda: hvd.alltoall(x, name="with join"),
            "Broadcast": lambda: hvd.broadcast(x, 1, name="with join"),
            "Reducescatter": lambda: hvd.reducescatter(x, name="with join"),
        }
        for name, call in calls.items():
            try:
                call()
                errors[name] = "no error"
            except hvd.HorovodInternalError as error:
                errors[name] = str(error)
        errors["min"] = hvd.allreduce(np.ones(2, np.float32), op=hvd.Min, name="zeros").tolist()
        errors["product"] = hvd.allreduce(np.ones(2, np.float32), op=hvd.Product, name="ones").tolist()
        errors["average"] = hvd.allreduce(np.full(2, 3.0), op=hvd.Average, name="thirds").tolist()
        hvd.join()
    return errors


def test_what_works_with_a_joined_rank():
    for errors in shared_world(3).run(others_with_join)[1:]:
        for name in ("Allgather", "Alltoall", "Broadcast", "Reducescatter"):
            assert f"{name} is not supported with Join at this time." in errors[name], errors[name]
        assert errors["min"] == [0.0, 0.0] and errors["product"] == [0.0, 0.0]
        assert errors["average"] == [2.0, 2.0]


def group_waits_for_all():
    """No member of a group runs before all are ready everywhere."""
    import time

    import horovod.numpy as hvd

    if hvd.rank() == 0:
        handle = hvd.grouped_allreduce_async([np.ones(2), np.ones(3)], op=hvd.Sum, name="atomic")
        time.sleep(0.3)
        early = hvd.poll(handle)
        hvd.barrier()
        result = hvd.synchronize(handle)
    else:
        early = False
        hvd.barrier()
        result = hvd.grouped_allreduce([np.ones(2), np.ones(3)], op=hvd.Sum, name="atomic")
    return early, [r.tolist() for r in result]


def test_groups_are_atomic():
    for early, result in shared_world(2).run(group_waits_for_all):
        assert early is False and result == [[2.0] * 2, [2.0] * 3]
