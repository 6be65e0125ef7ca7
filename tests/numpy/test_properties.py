# SPDX-License-Identifier: Apache-2.0
"""Random programs of collectives on random worlds, against the reference.

hypothesis draws a program: a list of operations with shapes, dtypes, reductions, process sets, and for every
rank an order to submit them in. All ranks run it asynchronously; every result is compared.
"""

from __future__ import annotations

import random

import numpy as np
import reference
from engine_calls import WAYS, calls_by
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests_support import check_close, shared_world

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
FLOATS = DTYPES[6:]

dimensions = st.lists(st.integers(0, 6), min_size=0, max_size=3).map(tuple)
rows = st.lists(st.integers(0, 9), min_size=4, max_size=4)
factors = st.sampled_from([1.0, 1.0, 0.5, 2.0, -1.0])

operations = st.one_of(
    st.tuples(
        st.just("allreduce"),
        st.sampled_from(DTYPES),
        dimensions,
        st.sampled_from([1, 3, 4, 5]),
        factors,
        factors,
    ),
    st.tuples(
        st.just("allreduce"), st.sampled_from(FLOATS), dimensions, st.sampled_from([0, 2]), factors, factors
    ),
    st.tuples(st.just("grouped"), st.sampled_from(DTYPES), st.lists(dimensions, min_size=1, max_size=4)),
    st.tuples(st.just("allgather"), st.sampled_from(DTYPES), dimensions, rows),
    st.tuples(st.just("broadcast"), st.sampled_from(DTYPES), dimensions, st.integers(0, 3)),
    st.tuples(
        st.just("alltoall"), st.sampled_from(DTYPES), dimensions, st.lists(rows, min_size=4, max_size=4)
    ),
    st.tuples(st.just("reducescatter"), st.sampled_from(DTYPES), st.integers(0, 20), dimensions, st.just(1)),
)
programs = st.lists(st.tuples(operations, st.booleans()), min_size=1, max_size=12)


def data(dtype, shape, rank, number):
    """Small whole numbers, so that every order of summation gives the same floats."""
    rng = np.random.default_rng([number, rank])
    low = 0 if dtype in ("bool", "uint8") else -3
    return rng.integers(low, 4, shape).astype(dtype)


def start(number, operation, members, index, process_set):
    """Submits one operation; returns its handle and what it must give."""
    import horovod.numpy as hvd

    kind, dtype, *rest = operation
    more = {"name": f"p{number}", "process_set": process_set}
    n = len(members)
    if kind == "allreduce":
        shape, op, pre, post = rest
        if dtype in ("bool", "uint8"):
            pre = post = 1.0
        arrays = [data(dtype, shape, r, number) for r in members]
        handle = hvd.allreduce_async(arrays[index], op=op, prescale_factor=pre, postscale_factor=post, **more)
        return handle, [reference.allreduce(arrays, op, pre, post)[index]]
    if kind == "grouped":
        groups = [[data(dtype, shape, r, number) for shape in rest[0]] for r in members]
        handle = hvd.grouped_allreduce_async(groups[index], op=hvd.Sum, **more)
        return handle, [reference.allreduce([g[i] for g in groups])[index] for i in range(len(rest[0]))]
    if kind == "allgather":
        shape, counts = rest
        arrays = [data(dtype, (counts[i], *shape), r, number) for i, r in enumerate(members)]
        return hvd.allgather_async(arrays[index], **more), [reference.allgather(arrays)[index]]
    if kind == "broadcast":
        shape, root = rest
        arrays = [data(dtype, shape, r, number) for r in members]
        root = root % n
        return hvd.broadcast_async(arrays[index], members[root], **more), [arrays[root]]
    if kind == "alltoall":
        shape, table = rest
        splits = [table[i][:n] for i in range(n)]
        arrays = [data(dtype, (sum(splits[i]), *shape), r, number) for i, r in enumerate(members)]
        handle = hvd.alltoall_async(arrays[index], splits[index], **more)
        want, received = reference.alltoall(arrays, splits)[index]
        return handle, [want, np.array(received, np.int32)]
    first, shape, op = rest
    arrays = [data(dtype, (first, *shape), r, number) for r in members]
    return hvd.reducescatter_async(arrays[index], op=op, **more), [reference.reducescatter(arrays, op)[index]]


def run_program(program, seed):
    """Runs the program on this rank, by one of the two ways into the engine; returns what came out wrong."""
    import horovod.numpy as hvd

    with calls_by(random.Random(f"{seed} {hvd.rank()} way").choice(WAYS)):
        return run_all(program, seed)


def run_all(program, seed):
    """The program itself."""
    import horovod.numpy as hvd

    me, n = hvd.rank(), hvd.size()
    everybody = list(range(n))
    some = sorted({0, n - 1}) if n > 2 else [n - 1]
    small = hvd.add_process_set(some) if some != everybody else hvd.global_process_set
    mine = []
    for number, (operation, in_set) in enumerate(program):
        members = some if in_set else everybody
        if me in members:
            process_set = small if in_set else hvd.global_process_set
            mine.append((number, operation, members, members.index(me), process_set))
    random.Random(f"{seed} {me}").shuffle(mine)
    started = [(number, operation, *start(number, operation, *rest)) for number, operation, *rest in mine]
    random.Random(f"{seed} {me} again").shuffle(started)
    failures = []
    for number, operation, handle, wants in started:
        got = hvd.synchronize(handle)
        results = got if isinstance(got, (list, tuple)) else [got]
        for result, want in zip(results, wants):
            failures.append(check_close(result, want, f"{number}: {operation}"))
    if small is not hvd.global_process_set:
        hvd.barrier()
        hvd.remove_process_set(small)
    return [f for f in failures if f]


quick = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def check(program, seed, size, hosts=None):
    assert shared_world(size, hosts=hosts).run(run_program, program, seed) == [[]] * size


@quick
@given(programs, st.integers(0, 1000), st.sampled_from([1, 2, 3, 4]))
def test_random_programs_on_one_host(program, seed, size):
    check(program, seed, size)


@quick
@given(programs, st.integers(0, 1000))
def test_random_programs_on_two_hosts_of_unequal_size(program, seed):
    check(program, seed, 3, hosts="localhost:2,127.0.0.1:1")


@settings(quick, max_examples=20)
@given(programs, st.integers(0, 1000))
def test_random_programs_on_three_hosts(program, seed):
    check(program, seed, 4, hosts="localhost:1,127.0.0.1:2,127.0.0.2:1")
