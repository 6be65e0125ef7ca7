# SPDX-License-Identifier: Apache-2.0
"""Every collective x element type x eager or jitted x ranks x process set, against the reference."""

from __future__ import annotations

import functools
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


def check_cases(mode, cases):
    """Failures of cases (label, function, this rank's argument, wanted result), each a call of its own or all
    of them in one jitted program."""
    import jax

    labels, functions, arguments, wants = zip(*cases)
    if mode == "jit":
        results = jax.jit(lambda inputs: [f(x) for f, x in zip(functions, inputs)])(list(arguments))
    else:
        results = [f(x) for f, x in zip(functions, arguments)]
    failed = []
    for label, got, want in zip(labels, results, wants):
        if jax.tree.structure(got) != jax.tree.structure(want):
            failed.append(f"{label}: another structure")
        pairs = zip(jax.tree.leaves(got), jax.tree.leaves(want))
        failed += [check_close(a, b, f"{label} leaf {i}") for i, (a, b) in enumerate(pairs)]
    return failed


def on_sets(mode, make_cases):
    """Failures of make_cases(process set, member ranks, my index), on all ranks and on the last two."""
    import horovod.jax as hvd

    last_two = list(range(hvd.size()))[-2:]
    failed = check_cases(mode, make_cases(hvd.global_process_set, list(range(hvd.size())), hvd.rank()))
    if len(last_two) < hvd.size():
        some = hvd.add_process_set(last_two)
        if some.included():
            cases = make_cases(some, last_two, last_two.index(hvd.rank()))
            failed += [text and f"last two: {text}" for text in check_cases(mode, cases)]
        hvd.barrier()
        hvd.remove_process_set(some)
    return [text for text in failed if text]


def allreduce_cases(process_set, members, index):
    import horovod.jax as hvd

    for dtype in DTYPES:
        ops = [hvd.Sum, hvd.Min, hvd.Max, hvd.Product] + ([] if dtype == "bool" else [hvd.Average])
        for op, shape in itertools.product(ops, SHAPES if dtype in ("float32", "bfloat16") else SHAPES[2:4]):
            arrays = [make(dtype, shape, r) for r in members]
            function = functools.partial(hvd.allreduce, op=op, process_set=process_set)
            yield f"{dtype} {op} {shape}", function, arrays[index], reference.allreduce(arrays, op)[index]


def scaled_cases(process_set, members, index):
    import horovod.jax as hvd

    for dtype, op in itertools.product(["int32", "float16", "float32", "float64"], [hvd.Sum, hvd.Average]):
        arrays = [make(dtype, (33,), r) for r in members]
        function = functools.partial(
            hvd.allreduce, op=op, prescale_factor=2.0, postscale_factor=0.25, process_set=process_set
        )
        yield f"{dtype} {op}", function, arrays[index], reference.allreduce(arrays, op, 2.0, 0.25)[index]


def tree_cases(process_set, members, index):
    """A pytree of mixed types is one operation."""
    import jax

    import horovod.jax as hvd

    def tree(r):
        leaves = [make(d, s, r, i) for i, (d, s) in enumerate(zip(DTYPES[1:], SHAPES * 3))]
        return {"w": leaves, "b": make("float32", (3,), r)}

    trees = [tree(r) for r in members]
    want = jax.tree.map(lambda *leaves: reference.allreduce(list(leaves))[index], *trees)
    function = functools.partial(hvd.allreduce, op=hvd.Sum, process_set=process_set)
    yield "tree", function, trees[index], want
    yield "named tree", functools.partial(function, name="tree"), trees[index], want
    yield (
        "list",
        functools.partial(hvd.grouped_allreduce, op=hvd.Sum, process_set=process_set),
        trees[index]["w"],
        want["w"],
    )
    yield "nothing", function, {}, {}


def broadcast_cases(process_set, members, index):
    import horovod.jax as hvd

    for dtype, shape, root in itertools.product(DTYPES, [(), (3, 5)], members):
        arrays = [make(dtype, shape, r) for r in members]
        function = functools.partial(hvd.broadcast, root_rank=root, process_set=process_set)
        yield f"{dtype} {shape} {root}", function, arrays[index], arrays[members.index(root)]


def allgather_cases(process_set, members, index, rows=(2, 2, 2)):
    import horovod.jax as hvd

    for dtype, trailing in itertools.product(DTYPES, [(), (2, 3)]):
        arrays = [make(dtype, (rows[i], *trailing), r) for i, r in enumerate(members)]
        function = functools.partial(hvd.allgather, process_set=process_set)
        yield f"{dtype} {trailing}", function, arrays[index], reference.allgather(arrays)[index]
    groups = [[make("float32", (rows[i] + k, k), r, k) for k in range(3)] for i, r in enumerate(members)]
    wants = [reference.allgather([g[k] for g in groups])[index] for k in range(3)]
    yield "group", functools.partial(hvd.grouped_allgather, process_set=process_set), groups[index], wants


def alltoall_cases(process_set, members, index):
    import horovod.jax as hvd

    n = len(members)
    for dtype, trailing in itertools.product(DTYPES, [(), (2, 2)]):
        arrays = [make(dtype, (2 * n, *trailing), r) for r in members]
        function = functools.partial(hvd.alltoall, process_set=process_set)
        yield f"even {dtype} {trailing}", function, arrays[index], reference.alltoall(arrays)[index][0]
        want = reference.alltoall(arrays, [[1] * n] * n)[index][0], np.ones(n, np.int32)
        yield f"equal {dtype} {trailing}", functools.partial(function, splits=[1] * n), arrays[index], want


def splits_cases(process_set, members, index):
    import horovod.jax as hvd

    n = len(members)
    splits = [[(i + 2 * j) % 4 for j in range(n)] for i in range(n)]
    for dtype, trailing in itertools.product(DTYPES, [(), (2, 2)]):
        arrays = [make(dtype, (sum(s) + 1, *trailing), r) for s, r in zip(splits, members)]
        want, rows = reference.alltoall(arrays, splits)[index]
        function = functools.partial(hvd.alltoall, splits=splits[index], process_set=process_set)
        yield f"splits {dtype} {trailing}", function, arrays[index], (want, np.array(rows, np.int32))


def reducescatter_cases(process_set, members, index):
    import horovod.jax as hvd

    for dtype, op, rows in itertools.product(INTEGERS + FLOATS, [hvd.Sum, hvd.Average], [1, 12, 17]):
        arrays = [make(dtype, (rows, 3), r) for r in members]
        function = functools.partial(hvd.reducescatter, op=op, process_set=process_set)
        yield f"{dtype} {op} {rows}", function, arrays[index], reference.reducescatter(arrays, op)[index]
    groups = [[make("float32", (rows,), r, rows) for rows in (3, 4, 9)] for r in members]
    wants = [reference.reducescatter([g[k] for g in groups], hvd.Sum)[index] for k in range(3)]
    function = functools.partial(hvd.grouped_reducescatter, op=hvd.Sum, process_set=process_set)
    yield "group", function, groups[index], wants


VERBS = {
    "allreduce": allreduce_cases,
    "allreduce scaled": scaled_cases,
    "allreduce of a tree": tree_cases,
    "broadcast": broadcast_cases,
    "allgather": allgather_cases,
    "alltoall": alltoall_cases,
    "reducescatter": reducescatter_cases,
}
EAGER = {
    "allgather of different rows": functools.partial(allgather_cases, rows=(0, 3, 1)),
    "alltoall with splits": splits_cases,
}


def run_grid(mode, verb):
    return on_sets(mode, {**VERBS, **EAGER}[verb])


def check(failures_of_ranks):
    for rank, failures in enumerate(failures_of_ranks):
        assert not failures, f"rank {rank}: {failures[:10]} ({len(failures)} in all)"


@pytest.mark.parametrize("mode", ["eager", "jit"])
@pytest.mark.parametrize("verb", VERBS)
def test_grid(world, verb, mode):
    check(world.run(run_grid, mode, verb))


@pytest.mark.parametrize("verb", EAGER)
def test_shapes_that_only_the_ranks_know(world, verb):
    check(world.run(run_grid, "eager", verb))


def run_adasum(mode, chosen, ranks):
    import horovod.jax as hvd

    if hvd.rank() not in ranks:
        return []
    arrays = [make("float32", (40,), r) for r in ranks]
    function = functools.partial(hvd.allreduce, op=hvd.Adasum, process_set=chosen)
    mine = ranks.index(hvd.rank())
    want = reference.allreduce(arrays, hvd.Adasum)[mine]
    return [text for text in check_cases(mode, [("adasum", function, arrays[mine], want)]) if text]


def run_adasum_in_both(mode):
    import horovod.jax as hvd

    failed = run_adasum(mode, hvd.global_process_set, list(range(hvd.size())))
    if hvd.size() > 2:
        some = hvd.add_process_set([0, 2])
        failed += run_adasum(mode, some, [0, 2])
        hvd.remove_process_set(some)
    return failed


@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_adasum(world, mode):
    check(world.run(run_adasum_in_both, mode))
