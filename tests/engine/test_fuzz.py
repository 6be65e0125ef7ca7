# SPDX-License-Identifier: Apache-2.0
"""The C interface under odd arguments: nothing crashes, every refusal has a text, the job stays usable.

Memory that a request describes must exist: shapes here are either small or larger than any memory, which the
engine refuses before it reads a byte.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests_support import shared_world

RELAXED = settings(
    max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)
HUGE = [2**48, 2**61, 2**62, 2**63 - 1, 2**63 - 2**61]
NEGATIVE = [-1, -2, -(2**31), -(2**63)]
SMALL = st.integers(0, 5)
ODD_INT32 = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 7, 2**31 - 1])

dimension = st.one_of(SMALL, SMALL, st.sampled_from(HUGE + NEGATIVE))
shape = st.lists(dimension, max_size=4)
split = st.one_of(SMALL, SMALL, st.sampled_from(HUGE + NEGATIVE))
name = st.one_of(
    st.text(alphabet=st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12),
    st.sampled_from(["x" * 70000, "ünï", '"quoted"\\', "new\nline"]),
)
request = st.fixed_dictionaries(
    {
        "kind": st.one_of(st.integers(0, 6), ODD_INT32),
        "name": name,
        "dtype": st.one_of(st.integers(0, 12), ODD_INT32),
        "shape": shape,
        "splits": st.one_of(st.none(), st.lists(split, max_size=3)),
        "prescale": st.sampled_from([1.0, 0.5, -1.0, 0.0, math.inf, math.nan, 1e308]),
        "reduce_op": st.one_of(st.integers(0, 5), ODD_INT32),
        "root": st.one_of(st.integers(0, 1), ODD_INT32),
        "process_set": st.one_of(st.just(0), st.just(0), ODD_INT32),
        "device": st.sampled_from([-1, -1, -1, -1, -2, 0, 7, 2**31 - 1]),
    },
    optional={
        "ndim": st.sampled_from([-1, -(2**31)]),
        "n_splits": st.sampled_from([-1, 0]),
        "struct_size": st.sampled_from([0, 1, 2**32 - 1]),
        "null": st.sampled_from(["name", "shape", "splits", "input"]),
    },
)


def submit(requests, count, flags):
    """Submits what the test made up and waits; returns status and text, and whether the job is still well."""
    import ctypes

    import numpy as np

    import horovod.numpy as hvd
    from horovod.common import _native
    from horovod.common._native import Request

    lib = _native.lib()
    array = (Request * max(len(requests), 1))()
    kept = []
    for made, want in zip(array, requests):
        dims = want["shape"]
        elements = 1
        for n in dims:
            elements *= max(n, 0)
        # Eight bytes an element, and room to spare; huge ones have hardly any memory at all.
        memory = ctypes.create_string_buffer(8 * elements + 64 if elements < 4096 else 64)
        c_shape = (ctypes.c_int64 * max(len(dims), 1))(*dims)
        splits = want["splits"] or []
        c_splits = (ctypes.c_int64 * max(len(splits), 1))(*splits)
        c_name = ctypes.create_string_buffer(want["name"].encode())
        kept.append((memory, c_shape, c_splits, c_name))
        made.struct_size = want.get("struct_size", ctypes.sizeof(Request))
        made.kind, made.dtype, made.reduce_op = want["kind"], want["dtype"], want["reduce_op"]
        made.root, made.process_set, made.device = want["root"], want["process_set"], want["device"]
        made.prescale, made.postscale = want["prescale"], 1.0
        made.ndim = want.get("ndim", len(dims))
        made.n_splits = want.get("n_splits", len(splits))
        made.name = ctypes.addressof(c_name)
        made.shape, made.splits = ctypes.addressof(c_shape), ctypes.addressof(c_splits)
        made.input = ctypes.addressof(memory)
        if "null" in want:
            setattr(made, want["null"], 0)
    handle = lib.hvd_submit(ctypes.addressof(array), count, flags & ~2, None, None, None)
    status, text = handle, _native.last_error() if handle < 0 else ""
    if handle > 0:
        status = lib.hvd_wait(handle, 30.0)
        text = _native.last_error() if status else ""
        lib.hvd_release(handle)
    well = hvd.allreduce(np.ones(2, np.float32), op=hvd.Sum, name="still well").tolist()
    return status, text, well == [float(hvd.size())] * 2


def check(reports):
    for status, text, well in reports:
        assert well
        assert status <= 0 and status != -5, f"neither done nor refused: {status}"
        assert (status == 0) == (text == ""), (status, text)
    assert len({status for status, _, _ in reports}) == 1


def alltoall(splits, rows):
    plain = dict(prescale=1.0, reduce_op=1, root=0, process_set=0, device=-1)
    return [dict(kind=4, name="overflow", dtype=7, shape=[rows], splits=splits, **plain)]


@RELAXED
@example(alltoall([2**61, 2**63 - 2**61], 4), None, 0)
@example(alltoall([2**63 - 1, 2], 1), None, 0)
@example(alltoall([2**62, 2**62], 0), None, 0)
@given(st.lists(request, min_size=1, max_size=3), st.sampled_from([None, None, None, 0, -1]), SMALL)
def test_requests_are_refused_with_a_text_or_done(requests, count, flags):
    number = len(requests) if count is None else count
    check(shared_world(2).run(submit, requests, number, flags))


@pytest.mark.parametrize("splits, rows", [([2**61, 2**63 - 2**61], 4), ([2**63 - 1, 2], 1)])
def test_alltoall_splits_that_overflow_are_refused(splits, rows):
    for status, text, well in shared_world(2).run(submit, alltoall(splits, rows), 1, 0):
        assert (status, well) == (-1, True)
        assert text == "Sum of splits entries is greater than the first dimension of tensor."


def gathered_too_much():
    """Every rank's part fits into memory, all of them together do not: the coordinator refuses it."""
    import ctypes

    import horovod.numpy as hvd
    from horovod.common import constants as c
    from horovod.common import engine

    small = ctypes.create_string_buffer(64)
    request = engine.request(
        c.ALLGATHER, "too much together", c.UINT8, (2**46 + 1, 1), ctypes.addressof(small)
    )
    try:
        engine.run([request])
    except hvd.HorovodInternalError as error:
        return str(error)
    return "no error"


def test_an_allgather_that_no_memory_holds_is_refused_everywhere():
    for text in shared_world(2).run(gathered_too_much):
        assert "Allgather of more bytes than any memory holds" in text and "too much together" in text


# ------------------------------------------------------------------------------ everything but requests --

world = st.fixed_dictionaries(
    {
        "rank": ODD_INT32,
        "hosts": st.lists(st.one_of(st.integers(0, 2), ODD_INT32), min_size=1, max_size=5),
        "n_hosts": st.integers(-1, 3),
        "size": st.integers(-1, 5),
        "members": st.lists(ODD_INT32, max_size=4),
        "process_set": ODD_INT32,
        "n_members": st.sampled_from([None, None, -1]),
    }
)
link = st.tuples(ODD_INT32, ODD_INT32, ODD_INT32, ODD_INT32)


def call(world, links, numbers, handle, text):
    """Calls that need no other rank, with whatever the test made up; the refusals without a text."""
    import ctypes
    import os

    from horovod.common import _native
    from horovod.common._native import Link, Output, World

    lib = _native.lib()
    silent = []

    def refused(what, status):
        if status < 0 and _native.last_error() in ("", marker):
            silent.append(what)
        lib.hvd_poll(-77)  # leaves the marker behind
        return status < 0

    lib.hvd_poll(-77)
    marker = _native.last_error()

    names = (ctypes.c_char_p * 3)(b"a", b"b", b"c")
    hosts = (ctypes.c_int32 * len(world["hosts"]))(*world["hosts"])
    size = min(world["size"], len(world["hosts"]))
    described = World(ctypes.sizeof(World), world["rank"], size, world["n_hosts"], 0, hosts, names, -1, None)
    members = (ctypes.c_int32 * max(len(world["members"]), 1))(*world["members"])
    planned = (Link * 4)()
    count = len(world["members"]) if world["n_members"] is None else world["n_members"]
    for out, cap in ((planned, 4), (None, 0), (None, 9), (planned, -1)):
        refused("plan", lib.hvd_plan_links(described, members, count, world["process_set"], out, cap))
    refused("plan", lib.hvd_plan_links(None, members, count, 0, planned, 4))
    refused("start", lib.hvd_start(None, None, 0))
    assert refused("start", lib.hvd_start(described, None, 0))  # it runs already
    made = (Link * max(len(links), 1))(*[Link(k, p, s, h, 0, -1) for k, p, s, h in links])
    refused("attach", lib.hvd_attach_links(made, len(links)))
    ranks = (ctypes.c_int32 * 2)()
    for number in numbers:
        fd = lib.hvd_shm_create(number)
        if not refused("shm", fd):
            os.close(fd)
        refused("ranks", lib.hvd_process_set_ranks(number, ranks, 2))
        refused("ranks", lib.hvd_process_set_ranks(number, None, 5))
        refused("ids", lib.hvd_process_set_ids(ranks, number % 3))
        refused("ids", lib.hvd_process_set_ids(None, number))
        refused("result", lib.hvd_result(handle, number, ctypes.addressof(Output())))
        refused("result", lib.hvd_result(handle, number, None))
        assert not lib.hvd_take(handle, number)
    assert refused("poll", lib.hvd_poll(handle)) and refused("wait", lib.hvd_wait(handle, float("nan")))
    lib.hvd_release(handle)
    refused("configure", lib.hvd_configure(text, text))
    refused("configure", lib.hvd_configure(None, b"1"))
    refused("configure", lib.hvd_configure(b"timeline", None))
    refused("timeline", lib.hvd_timeline_start(None, 0))
    refused("add", lib.hvd_add_process_set(None, 3))
    refused("add", lib.hvd_add_process_set(ranks, -3))
    refused("abort", lib.hvd_abort(None))
    assert refused("metrics", lib.hvd_metrics(None, 10)) and lib.hvd_metrics(None, 0) > 0
    refused("submit", lib.hvd_submit(None, 1, 0, None, None, None))
    refused("run", lib.hvd_run(None, 1, 1.0, None))
    refused("mpi", lib.hvd_mpi_attach(None, 0))
    return silent


@RELAXED
@given(
    world,
    st.lists(link, max_size=3),
    st.lists(st.sampled_from([-(2**31), -1, 0, 2, 2**31 - 1]), max_size=3),
    st.one_of(st.sampled_from([-(2**63), -1, 0, 2**63 - 1]), st.integers(10**9, 10**12)),
    st.binary(max_size=20).map(lambda b: b.replace(b"\0", b"") or b"?"),
)
def test_every_other_call_refuses_nonsense_with_a_text(world, links, numbers, handle, text):
    running = shared_world(2)
    assert running.run(call, world, links, numbers, handle, text) == [[], []]
    check(running.run(submit, alltoall([1, 1], 2), 1, 0))


def sets(ranks):
    import ctypes

    from horovod.common import _native

    lib = _native.lib()
    c_ranks = (ctypes.c_int32 * max(len(ranks), 1))(*ranks)
    added = lib.hvd_add_process_set(c_ranks, len(ranks))
    text = _native.last_error() if added < 0 else ""
    removed = lib.hvd_remove_process_set(added) if added > 0 else 0
    wrong = lib.hvd_remove_process_set(added if added > 0 else 12345)
    return min(added, 0), text, removed, wrong, _native.last_error()


@settings(RELAXED, max_examples=40)
@given(st.lists(st.one_of(st.integers(0, 1), ODD_INT32), max_size=4))
def test_process_sets_of_any_ranks(ranks):
    first, second = shared_world(2).run(sets, ranks)
    assert first == second
    added, text, removed, wrong, last = first
    assert (added == 0) == (text == "") and removed == 0
    assert wrong == -1 and "does not exist" in last
