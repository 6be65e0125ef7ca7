# SPDX-License-Identifier: Apache-2.0
"""Every collective x element type x eager or jitted x number of ranks x process set, against the reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import reference
from tests_support import check_close

INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
DTYPES = ["bool", *INTEGERS, *FLOATS]
SHAPES = [(), (0,), (7,), (3, 5), (129, 3)]


def make(dtype, shape, rank, seed=0):
    """An array that every rank can compute for every other rank; small values, so that sums stay exact."""
    import jax.numpy as jnp

    kind = np.dtype(getattr(jnp, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    rng = np.random.default_rng([seed, rank, *shape])
    return rng.integers(0 if kind.kind in "ub" else -4, 5, shape).astype(kind)


def compiled(mode, function):
    """The function as it is, or jitted."""
    import jax

    return jax.jit(function) if mode == "jit" else function


def on_sets(body):
    """Failures of body(process set, member ranks, my index, label), on all ranks and on the last two."""
    import horovod.jax as hvd

    last_two = list(range(hvd.size()))[-2:]
    failed = body(hvd.global_process_set, list(range(hvd.size())), hvd.rank(), "global")
    if len(last_two) < hvd.size():
        some = hvd.add_process_set(last_two)
        if some.included():
            failed += body(some, last_two, last_two.index(hvd.rank()), "last two")
        hvd.barrier()
        hvd.remove_process_set(some)
    return [text for text in failed if text]


def run_allreduce(mode):
    import horovod.jax as hvd

    def body(process_set, members, index, label):
        failed = []
        for dtype in DTYPES:
            ops = [hvd.Sum, hvd.Min, hvd.Max, hvd.Product] + ([] if dtype == "bool" else [hvd.Average])
            for op, shape in itertools.product(ops, SHAPES if dtype in ("float32", "bfloat16") else SHAPES[2:4]):
                arrays = [make(dtype, shape, r) for r in members]
                call = compiled(mode, lambda a, op=op: hvd.allreduce(a, op=op, process_set=process_set))
                want = reference.allreduce(arrays, op)[index]
                failed.append(check_close(call(arrays[index]), want, f"{label} {dtype} {op} {shape}"))
        return failed

    return on_sets(body)


def run_scaled(mode):
    import horovod.jax as hvd

    def body(process_set, members, index, label):
        failed = []
        for dtype, op in itertools.product(["int32", "float16", "float32", "float64"], [hvd.Sum, hvd.Average]):
            arrays = [make(dtype, (33,), r) for r in members]
            call = compiled(
                mode,
                lambda a, op=op: hvd.allreduce(
                    a, op=op, prescale_factor=2.0, postscale_factor=0.25, process_set=process_set
                ),
            )
            want = reference.allreduce(arrays, op, 2.0, 0.25)[index]
            failed.append(check_close(call(arrays[index]), want, f"{label} {dtype} {op}"))
        return failed

    return on_sets(body)


def run_tree(mode):
    """A pytree of mixed types is one operation."""
    import horovod.jax as hvd
    import jax

    def body(process_set, members, index, label):
        trees = [
            {"w": [make(d, s, r, i) for i, (d, s) in enumerate(zip(DTYPES[1:], SHAPES * 3))], "b": make("float32", (3,), r)}
            for r in members
        ]
        call = compiled(mode, lambda t: hvd.allreduce(t, op=hvd.Sum, process_set=process_set, name="tree"))
        got = call(trees[index])
        want = jax.tree.map(lambda *leaves: reference.allreduce(list(leaves))[index], *trees)
        same = jax.tree.structure(got) == jax.tree.structure(want)
        failed = ["" if same else f"{label}: another structure"]
        pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want))
        return failed + [check_close(a, b, f"{label} leaf {i}") for i, (a, b) in enumerate(pairs)]

    return on_sets(body)


def run_broadcast(mode):
    import horovod.jax as hvd

    def body(process_set, members, index, label):
        failed = []
        for dtype, shape, root in itertools.product(DTYPES, [(), (3, 5)], members):
            arrays = [make(dtype, shape, r) for r in members]
            call = compiled(mode, lambda a, root=root: hvd.broadcast(a, root, process_set=process_set))
            want = arrays[members.index(root)]
            failed.append(check_close(call(arrays[index]), want, f"{label} {dtype} {shape} {root}"))
        return failed

    return on_sets(body)


def run_allgather(mode):
    import horovod.jax as hvd

    def body(process_set, members, index, label):
        failed = []
        for dtype, trailing in itertools.product(DTYPES, [(), (2, 3)]):
            rows = [2 if mode == "jit" else (2 * i) % 5 for i in range(len(members))]
            arrays = [make(dtype, (n, *trailing), r) for n, r in zip(rows, members)]
            call = compiled(mode, lambda a: hvd.allgather(a, process_set=process_set))
            want = reference.allgather(arrays)[index]
            failed.append(check_close(call(arrays[index]), want, f"{label} {dtype} {trailing}"))
        groups = [[make("float32", (k + 1, k), r, k) for k in range(3)] for r in members]
        got = compiled(mode, lambda g: hvd.grouped_allgather(g, process_set=process_set))(groups[index])
        for k in range(3):
            failed.append(check_close(got[k], reference.allgather([g[k] for g in groups])[index], f"group {k}"))
        return failed

    return on_sets(body)


def run_alltoall(mode):
    import horovod.jax as hvd

    def body(process_set, members, index, label):
        failed, n = [], len(members)
        for dtype, trailing in itertools.product(DTYPES, [(), (2, 2)]):
            arrays = [make(dtype, (2 * n, *trailing), r) for r in members]
            call = compiled(mode, lambda a: hvd.alltoall(a, process_set=process_set))
            want = reference.alltoall(arrays)[index][0]
            failed.append(check_close(call(arrays[index]), want, f"{label} even {dtype} {trailing}"))
            equal = compiled(mode, lambda a: hvd.alltoall(a, [1] * n, process_set=process_set))
            got, received = equal(arrays[index])
            want = reference.alltoall(arrays, [[1] * n] * n)[index][0]
            failed.append(check_close(got, want, f"{label} equal {dtype} {trailing}"))
            failed.append(check_close(received, np.ones(n, np.int32), "received"))
            if mode == "jit":
                continue
            splits = [[(i + 2 * j) % 4 for j in range(n)] for i in range(n)]
            arrays = [make(dtype, (sum(s) + 1, *trailing), r) for s, r in zip(splits, members)]
            got, received = hvd.alltoall(arrays[index], splits[index], process_set=process_set)
            want, rows = reference.alltoall(arrays, splits)[index]
            failed.append(check_close(got, want, f"{label} splits {dtype} {trailing}"))
            failed.append(check_close(received, np.array(rows, np.int32), f"{label} received"))
        return failed

    return on_sets(body)


def run_reducescatter(mode):
    import horovod.jax as hvd

    def body(process_set, members, index, label):
        failed = []
        for dtype, op, rows in itertools.product(INTEGERS + FLOATS, [hvd.Sum, hvd.Average], [1, 12, 17]):
            arrays = [make(dtype, (rows, 3), r) for r in members]
            call = compiled(mode, lambda a, op=op: hvd.reducescatter(a, op=op, process_set=process_set))
            want = reference.reducescatter(arrays, op)[index]
            failed.append(check_close(call(arrays[index]), want, f"{label} {dtype} {op} {rows}"))
        groups = [[make("float32", (rows,), r, rows) for rows in (3, 4, 9)] for r in members]
        call = compiled(mode, lambda g: hvd.grouped_reducescatter(g, op=hvd.Sum, process_set=process_set))
        for k, got in enumerate(call(groups[index])):
            want = reference.reducescatter([g[k] for g in groups], hvd.Sum)[index]
            failed.append(check_close(got, want, f"group {k}"))
        return failed

    return on_sets(body)


VERBS = {
    "allreduce": run_allreduce,
    "allreduce scaled": run_scaled,
    "allreduce of a tree": run_tree,
    "broadcast": run_broadcast,
    "allgather": run_allgather,
    "alltoall": run_alltoall,
    "reducescatter": run_reducescatter,
}


@pytest.mark.parametrize("mode", ["eager", "jit"])
@pytest.mark.parametrize("verb", VERBS)
def test_grid(world, verb, mode):
    for rank, failures in enumerate(world.run(VERBS[verb], mode, timeout=120)):
        assert not failures, f"rank {rank}: {failures[:10]} ({len(failures)} in all)"


def run_adasum(mode):
    import horovod.jax as hvd

    arrays = [make("float32", (40,), r) for r in range(hvd.size())]
    got = compiled(mode, lambda a: hvd.allreduce(a, op=hvd.Adasum))(arrays[hvd.rank()])
    return check_close(got, reference.allreduce(arrays, hvd.Adasum)[hvd.rank()], "adasum")


@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_adasum(pair, mode):
    assert pair.run(run_adasum, mode) == ["", ""]
