# SPDX-License-Identifier: Apache-2.0
"""Every collective x element type x number of ranks x process set, against the reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import reference
from tests_support import check_close, shared_world

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
DTYPES = ["bool", *INTEGERS, *FLOATS]
SHAPES = [(), (1,), (7,), (0,), (3, 5), (2, 0, 3), (1025,), (4, 1000, 3)]
SIZES = [1, 2, 3, 4]


def make(dtype, shape, rank, seed=0):
    """An array that every rank can compute for every other rank; small values, so that sums stay exact."""
    if dtype == "bfloat16":
        import ml_dtypes

        kind = np.dtype(ml_dtypes.bfloat16)
    else:
        kind = np.dtype(dtype)
    rng = np.random.default_rng([seed, rank, *shape])
    low = 0 if kind.kind in "ub" else -4
    return rng.integers(low, 5, shape).astype(kind)


def members_of(which, size):
    """Ranks of the process sets of the grid."""
    return {"global": list(range(size)), "last": [size - 1], "even": list(range(0, size, 2))}[which]


def with_sets(size, body):
    """Runs body(set name, process set, member ranks, my index) for each kind of set this rank is in."""
    import horovod.numpy as hvd

    failures = {}
    for which in ("global", "last", "even"):
        members = members_of(which, size)
        if which == "global" or members == list(range(size)):
            process_set, added = hvd.global_process_set, False
        else:
            process_set, added = hvd.add_process_set(members), True
        if process_set.included():
            failures.update(body(which, process_set, members, members.index(hvd.rank())))
        if added:
            hvd.barrier()
            hvd.remove_process_set(process_set)
    return failures


def allreduce_cases(dtype):
    import horovod.numpy as hvd

    ops = [hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product]
    ops = [hvd.Sum, hvd.Min, hvd.Max, hvd.Product] if dtype == "bool" else ops
    return [*ops, hvd.Adasum] if dtype in FLOATS else ops


def run_allreduce(dtype):
    import horovod.numpy as hvd

    def body(which, process_set, members, index):
        failed = []
        for op, shape in itertools.product(allreduce_cases(dtype), SHAPES):
            arrays = [make(dtype, shape, r) for r in members]
            want = reference.allreduce(arrays, op)[index]
            name = f"{which}.{dtype}.{op}.{shape}"
            failed.append(
                check_close(
                    hvd.allreduce(arrays[index], op=op, name=name, process_set=process_set), want, name
                )
            )
            mine = arrays[index].copy()
            result = hvd.allreduce_(mine, op=op, name=name, process_set=process_set)
            failed.append("" if result is mine else f"{name}: in place gave another object")
            failed.append(check_close(mine, want, f"{name} in place"))
        return {which: [f for f in failed if f]}

    return with_sets(hvd.size(), body)


def run_scaled(dtype):
    import horovod.numpy as hvd

    def body(which, process_set, members, index):
        failed = []
        for op, pre, post in itertools.product([hvd.Sum, hvd.Average], [1.0, 0.5, 2.0], [1.0, 0.25, 3.0]):
            arrays = [make(dtype, (33,), r) for r in members]
            want = reference.allreduce(arrays, op, pre, post)[index]
            name = f"{which}.{dtype}.{op}.{pre}.{post}"
            got = hvd.allreduce(
                arrays[index],
                op=op,
                name=name,
                prescale_factor=pre,
                postscale_factor=post,
                process_set=process_set,
            )
            failed.append(check_close(got, want, name))
        return {which: [f for f in failed if f]}

    return with_sets(hvd.size(), body)


def run_grouped_allreduce(dtype):
    import horovod.numpy as hvd

    def body(which, process_set, members, index):
        group = [[make(dtype, shape, r, seed) for seed, shape in enumerate(SHAPES)] for r in members]
        got = hvd.grouped_allreduce(
            group[index], op=hvd.Sum, name=f"g.{which}.{dtype}", process_set=process_set
        )
        wants = [reference.allreduce([g[i] for g in group])[index] for i in range(len(SHAPES))]
        failed = [check_close(a, b, f"{which} member {i}") for i, (a, b) in enumerate(zip(got, wants))]
        return {which: [f for f in failed if f]}

    return with_sets(hvd.size(), body)


def run_allgather(dtype):
    import horovod.numpy as hvd

    def body(which, process_set, members, index):
        failed = []
        for shape in [(), (5,), (2, 3), (0, 4)]:
            arrays = [make(dtype, ((r * 2) % 5, *shape), r) for r in members]
            name = f"{which}.{dtype}.{shape}"
            got = hvd.allgather(arrays[index], name=name, process_set=process_set)
            failed.append(check_close(got, reference.allgather(arrays)[index], name))
        groups = [[make(dtype, (r + k, k), r, k) for k in range(3)] for r in members]
        got = hvd.grouped_allgather(groups[index], name=f"{which}.{dtype}", process_set=process_set)
        for k in range(3):
            failed.append(
                check_close(got[k], reference.allgather([g[k] for g in groups])[index], f"group {k}")
            )
        return {which: [f for f in failed if f]}

    return with_sets(hvd.size(), body)


def run_broadcast(dtype):
    import horovod.numpy as hvd

    def body(which, process_set, members, index):
        failed = []
        for root, shape in itertools.product(members, SHAPES):
            arrays = [make(dtype, shape, r) for r in members]
            want = arrays[members.index(root)]
            name = f"{which}.{dtype}.{root}.{shape}"
            got = hvd.broadcast(arrays[index], root, name=name, process_set=process_set)
            failed.append(check_close(got, want, name))
            mine = arrays[index].copy()
            hvd.broadcast_(mine, root, name=name, process_set=process_set)
            failed.append(check_close(mine, want, f"{name} in place"))
        return {which: [f for f in failed if f]}

    return with_sets(hvd.size(), body)


def run_alltoall(dtype):
    import horovod.numpy as hvd

    def body(which, process_set, members, index):
        failed, n = [], len(members)
        for trailing in [(), (3,), (2, 2)]:
            name = f"{which}.{dtype}.{trailing}"
            arrays = [make(dtype, (n * 2, *trailing), r) for r in members]
            got = hvd.alltoall(arrays[index], name=f"even.{name}", process_set=process_set)
            failed.append(check_close(got, reference.alltoall(arrays)[index][0], f"even {name}"))
            splits = [[(i + 2 * j) % 4 for j in range(n)] for i in range(n)]
            arrays = [make(dtype, (sum(s) + 1, *trailing), r) for s, r in zip(splits, members)]
            got, received = hvd.alltoall(arrays[index], splits[index], name=name, process_set=process_set)
            want, rows = reference.alltoall(arrays, splits)[index]
            failed.append(check_close(got, want, f"splits {name}"))
            failed.append("" if list(received) == rows else f"{name}: received {list(received)}, want {rows}")
        return {which: [f for f in failed if f]}

    return with_sets(hvd.size(), body)


def run_reducescatter(dtype):
    import horovod.numpy as hvd

    def body(which, process_set, members, index):
        failed = []
        for op, rows in itertools.product([hvd.Sum, hvd.Average], [0, 1, 2, 5, 12, 1027]):
            if dtype == "bool" and op == hvd.Average:
                continue
            arrays = [make(dtype, (rows, 3), r) for r in members]
            name = f"{which}.{dtype}.{op}.{rows}"
            got = hvd.reducescatter(arrays[index], op=op, name=name, process_set=process_set)
            failed.append(check_close(got, reference.reducescatter(arrays, op)[index], name))
        groups = [[make(dtype, (rows,), r, rows) for rows in (3, 4, 9)] for r in members]
        got = hvd.grouped_reducescatter(
            groups[index], op=hvd.Sum, name=f"{which}.{dtype}", process_set=process_set
        )
        for k in range(3):
            want = reference.reducescatter([g[k] for g in groups], hvd.Sum)[index]
            failed.append(check_close(got[k], want, f"group {k}"))
        return {which: [f for f in failed if f]}

    return with_sets(hvd.size(), body)


VERBS = {
    "allreduce": run_allreduce,
    "grouped_allreduce": run_grouped_allreduce,
    "allgather": run_allgather,
    "broadcast": run_broadcast,
    "alltoall": run_alltoall,
    "reducescatter": run_reducescatter,
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("verb", VERBS)
def test_grid(verb, dtype, size):
    for rank, failures in enumerate(shared_world(size).run(VERBS[verb], dtype)):
        assert not any(failures.values()), f"rank {rank}: {failures}"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_scale_factors(dtype, size):
    for rank, failures in enumerate(shared_world(size).run(run_scaled, dtype)):
        assert not any(failures.values()), f"rank {rank}: {failures}"


# Two "hosts" with unequal numbers of ranks on this machine: TCP between them, shared memory inside.
HOSTS = {3: "localhost:2,127.0.0.1:1", 4: "localhost:1,127.0.0.1:2,127.0.0.2:1"}


@pytest.mark.parametrize("size", HOSTS)
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32"])
@pytest.mark.parametrize("verb", VERBS)
def test_grid_over_hosts(verb, dtype, size):
    for rank, failures in enumerate(shared_world(size, hosts=HOSTS[size]).run(VERBS[verb], dtype)):
        assert not any(failures.values()), f"rank {rank}: {failures}"
