# SPDX-License-Identifier: Apache-2.0
"""Every collective x element type x nd or mx.np x number of ranks x process set, against the reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import reference
from tests_support import check_close

DTYPES = ["uint8", "int8", "int32", "int64", "float16", "float32", "float64"]
SHAPES = [(1,), (7,), (3, 5), (129, 3)]


def make(dtype, shape, rank, seed=0):
    """An array that every rank can compute for every other rank; small values, so that sums stay exact."""
    rng = np.random.default_rng([seed, rank, *shape])
    return rng.integers(0 if dtype == "uint8" else -4, 5, shape).astype(dtype)


def tensor(kind, array):
    """The array as an NDArray or a mx.np array."""
    import mxnet as mx

    return (mx.nd if kind == "nd" else mx.np).array(array, dtype=array.dtype)


def on_sets(body):
    """Failures of body(process set, member ranks, my index, label), on all ranks and on the last two."""
    import horovod.mxnet as hvd
    import horovod.numpy as hvd_numpy

    last_two = list(range(hvd.size()))[-2:]
    failed = body(hvd.global_process_set, list(range(hvd.size())), hvd.rank(), "global")
    if len(last_two) < hvd.size():
        some = hvd.add_process_set(last_two)
        if some.included():
            failed += body(some, last_two, last_two.index(hvd.rank()), "last two")
        hvd_numpy.barrier()
        hvd.remove_process_set(some)
    return [text for text in failed if text]


def run_allreduce(kind):
    import horovod.mxnet as hvd

    def body(process_set, members, index, label):
        failed, pending = [], []
        ops = [hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product]
        for number, (dtype, op, shape) in enumerate(itertools.product(DTYPES, ops, SHAPES)):
            arrays = [make(dtype, shape, r) for r in members]
            want, what = reference.allreduce(arrays, op)[index], f"{label} {dtype} {op} {shape}"
            mine = tensor(kind, arrays[index])
            out = hvd.allreduce(mine, op=op, priority=-number, process_set=process_set)
            place = mine.copy()
            result = hvd.allreduce_(place, op=op, name=what, process_set=process_set)
            failed.append("" if result is place and type(out) is type(mine) else f"{what}: another object")
            pending.append((out, place, mine, arrays[index], want, what))
        for out, place, mine, before, want, what in pending:  # all were in flight together
            failed.append(check_close(out.asnumpy(), want, what))
            failed.append(check_close(place.asnumpy(), want, f"{what} in place"))
            failed.append(check_close(mine.asnumpy(), before, f"{what} input changed"))
        return failed

    return on_sets(body)


def run_scaled(kind):
    import horovod.mxnet as hvd

    def body(process_set, members, index, label):
        failed = []
        for dtype, op in itertools.product(
            ["int32", "float16", "float32", "float64"], [hvd.Sum, hvd.Average]
        ):
            arrays = [make(dtype, (33,), r) for r in members]
            got = hvd.allreduce(
                tensor(kind, arrays[index]),
                op=op,
                prescale_factor=2.0,
                postscale_factor=0.25,
                process_set=process_set,
            )
            want = reference.allreduce(arrays, op, 2.0, 0.25)[index]
            failed.append(check_close(got.asnumpy(), want, f"{label} {dtype} {op}"))
        return failed

    return on_sets(body)


def run_grouped(kind):
    import horovod.mxnet as hvd

    def body(process_set, members, index, label):
        failed = []
        for dtype in DTYPES:
            groups = [[make(dtype, s, r, i) for i, s in enumerate(SHAPES)] for r in members]
            mine = [tensor(kind, a) for a in groups[index]]
            wants = [reference.allreduce([g[i] for g in groups])[index] for i in range(len(SHAPES))]
            outs = hvd.grouped_allreduce(mine, op=hvd.Sum, process_set=process_set)
            same = hvd.grouped_allreduce_(
                mine, op=hvd.Sum, name=f"g.{label}.{dtype}", process_set=process_set
            )
            failed.append("" if same is mine else "in place gave another list")
            for i, want in enumerate(wants):
                failed.append(check_close(outs[i].asnumpy(), want, f"{label} {dtype} {i}"))
                failed.append(check_close(mine[i].asnumpy(), want, f"{label} {dtype} {i} in place"))
        failed.append("" if hvd.grouped_allreduce([]) == [] else "empty list")
        return failed

    return on_sets(body)


def run_broadcast(kind):
    import horovod.mxnet as hvd

    def body(process_set, members, index, label):
        failed = []
        for dtype, shape, root in itertools.product(DTYPES, SHAPES[:3], members):
            arrays = [make(dtype, shape, r) for r in members]
            want, mine = arrays[members.index(root)], tensor(kind, arrays[index])
            out = hvd.broadcast(mine, root, process_set=process_set)
            hvd.broadcast_(mine, root, process_set=process_set)
            failed.append(check_close(out.asnumpy(), want, f"{label} {dtype} {shape} {root}"))
            failed.append(check_close(mine.asnumpy(), want, f"{label} {dtype} {shape} {root} in place"))
        return failed

    return on_sets(body)


def run_allgather(kind):
    import horovod.mxnet as hvd

    def body(process_set, members, index, label):
        failed = []
        for dtype, trailing in itertools.product(DTYPES, [(), (2, 3)]):
            arrays = [make(dtype, (1 + i % 3, *trailing), r) for i, r in enumerate(members)]
            got = hvd.allgather(tensor(kind, arrays[index]), process_set=process_set)
            failed.append(
                check_close(got.asnumpy(), reference.allgather(arrays)[index], f"{label} {dtype} {trailing}")
            )
        groups = [[make("float32", (i + k + 1, 2), r, k) for k in range(3)] for i, r in enumerate(members)]
        got = hvd.grouped_allgather([tensor(kind, a) for a in groups[index]], process_set=process_set)
        for k in range(3):
            want = reference.allgather([g[k] for g in groups])[index]
            failed.append(check_close(got[k].asnumpy(), want, f"group {k}"))
        return failed

    return on_sets(body)


def run_alltoall(kind):
    import mxnet as mx

    import horovod.mxnet as hvd

    def body(process_set, members, index, label):
        failed, n = [], len(members)
        for dtype, trailing in itertools.product(DTYPES, [(), (2, 2)]):
            arrays = [make(dtype, (2 * n, *trailing), r) for r in members]
            got = hvd.alltoall(tensor(kind, arrays[index]), process_set=process_set)
            failed.append(
                check_close(got.asnumpy(), reference.alltoall(arrays)[index][0], f"{label} even {dtype}")
            )
            splits = [[1 + (i + 2 * j) % 3 for j in range(n)] for i in range(n)]
            arrays = [make(dtype, (sum(s) + 1, *trailing), r) for s, r in zip(splits, members)]
            mine = mx.nd.array(splits[index], dtype="int32") if trailing else splits[index]
            got, received = hvd.alltoall(tensor(kind, arrays[index]), mine, process_set=process_set)
            want, rows = reference.alltoall(arrays, splits)[index]
            failed.append(check_close(got.asnumpy(), want, f"{label} splits {dtype}"))
            failed.append(check_close(received.asnumpy(), np.array(rows, np.int32), "received"))
        return failed

    return on_sets(body)


def run_reducescatter(kind):
    import horovod.mxnet as hvd

    def body(process_set, members, index, label):
        failed = []
        for dtype, op, rows in itertools.product(DTYPES, [hvd.Sum, hvd.Average], [12, 17]):
            arrays = [make(dtype, (rows, 3), r) for r in members]
            got = hvd.reducescatter(tensor(kind, arrays[index]), op=op, process_set=process_set)
            want = reference.reducescatter(arrays, op)[index]
            failed.append(check_close(got.asnumpy(), want, f"{label} {dtype} {op} {rows}"))
        groups = [[make("float32", (rows,), r, rows) for rows in (3, 4, 9)] for r in members]
        mine = [tensor(kind, a) for a in groups[index]]
        for k, got in enumerate(hvd.grouped_reducescatter(mine, op=hvd.Sum, process_set=process_set)):
            want = reference.reducescatter([g[k] for g in groups], hvd.Sum)[index]
            failed.append(check_close(got.asnumpy(), want, f"group {k}"))
        return failed

    return on_sets(body)


VERBS = {
    "allreduce": run_allreduce,
    "allreduce scaled": run_scaled,
    "grouped_allreduce": run_grouped,
    "broadcast": run_broadcast,
    "allgather": run_allgather,
    "alltoall": run_alltoall,
    "reducescatter": run_reducescatter,
}


@pytest.mark.parametrize("kind", ["nd", "np"])
@pytest.mark.parametrize("verb", VERBS)
def test_grid(world, verb, kind):
    for rank, failures in enumerate(world.run(VERBS[verb], kind)):
        assert not failures, f"rank {rank}: {failures[:10]} ({len(failures)} in all)"
