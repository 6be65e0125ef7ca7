# SPDX-License-Identifier: Apache-2.0
"""From events to operations, in both forms of files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timelines import EPOCH, Imagined
from traces_of import trace_of

START = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": EPOCH}}


def tensor(pid, name):
    return {"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}}


def test_a_rank_of_many():
    job = Imagined(size=3, steps=2, tensors=2, late={2: 500.0}, skew={1: 9e6}, hosts=("a", "b", "c"))
    trace = trace_of(job.events()[1])
    assert (trace.rank, trace.size, trace.host, trace.aligned, trace.alone) == (1, 3, "b", True, False)
    assert [op.name for op in trace.operations] == ["grad.0", "grad.1"] * 2
    first = trace.operations[0]
    assert first.submitted == EPOCH + 10_000 and first.ready == first.started == EPOCH + 10_500
    assert first.ended == EPOCH + 11_500 and first.last_rank == 2 and first.bytes == 1 << 20
    assert [step.number for step in trace.steps] == [1, 2]
    assert trace.parts == {"WIRE": 4000.0}


def test_a_file_of_rank_0_alone():
    """Begin and end events, tensors as processes, ticks of ranks, sizes from the shape."""
    events = [
        START,
        tensor(1, "allreduce.a"),
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 1},
        {"ph": "X", "name": "1", "ts": 100, "pid": 1, "dur": 0},
        {"ph": "X", "name": "0", "ts": 150, "pid": 1, "dur": 0},
        {"ph": "X", "name": "2", "ts": 400, "pid": 1, "dur": 0},
        {"ph": "E", "ts": 410, "pid": 1},
        {"ph": "B", "name": "ALLREDUCE", "ts": 420, "pid": 1},
        {"ph": "B", "name": "MEMCPY_IN_FUSION_BUFFER", "ts": 425, "pid": 1},
        {"ph": "E", "ts": 435, "pid": 1},
        {"ph": "i", "name": "CYCLE_START", "ts": 436, "s": "g"},
        {"ph": "E", "ts": 450, "pid": 1, "args": {"dtype": "float32", "shape": "[2, 3]"}},
        {"ph": "E", "ts": 460, "pid": 1},  # of something that began before the file did
    ]
    trace = trace_of(events)
    (op,) = trace.operations
    assert (op.name, op.kind, op.bytes, op.last_rank) == ("allreduce.a", "ALLREDUCE", 24, 2)
    assert [t - EPOCH for t in (op.submitted, op.ready, op.started, op.ended)] == [150, 410, 420, 450]
    assert trace.alone and trace.parts == {"MEMCPY_IN_FUSION_BUFFER": 10.0}
    assert [(rank, time - EPOCH, last) for rank, time, _, last in trace.others] == [(1, 100, 2), (2, 400, 2)]


def test_ranks_that_come_together_are_nobodys_fault():
    ticks = [{"ph": "X", "name": str(rank), "ts": 100 + rank, "pid": 1, "dur": 0} for rank in range(3)]
    span = {"ph": "X", "name": "ALLREDUCE", "ts": 200, "dur": 10, "pid": 1}
    assert trace_of([START, tensor(1, "a"), *ticks, span]).operations[0].last_rank == -1


@pytest.mark.parametrize(
    "dtype, shape, expected",
    [
        ("float64", "[3]", 24),
        ("bfloat16", "[2, 2]", 8),
        ("bool", "[5]", 5),
        ("float32", "[]", 4),
        ("?", "[5]", 0),
    ],
)
def test_bytes_of_a_shape(dtype, shape, expected):
    span = {"ph": "X", "name": "ALLREDUCE", "ts": 0, "dur": 1, "args": {"dtype": dtype, "shape": shape}}
    assert trace_of([START, span]).operations[0].bytes == expected


def test_a_barrier_is_an_operation():
    events = [
        START,
        tensor(1, "barrier"),
        {"ph": "X", "name": "NEGOTIATE_BARRIER", "ts": 5, "dur": 10, "pid": 1},
    ]
    (op,) = trace_of(events).operations
    assert op.kind == "BARRIER" and op.ended - op.submitted == 10


def test_what_is_no_timeline():
    assert trace_of([{"ph": "X", "name": "ALLREDUCE", "ts": 1, "dur": 1}]) is None
    assert trace_of([]) is None


def test_the_coordinators_file():
    """As rank 0 writes it: its own submission comes after the negotiation, the next step begins early."""
    args = {"tensor": "a", "kind": "ALLREDUCE", "bytes": 8, "last_rank": 0}
    me = {"rank": 0, "size": 2, "host": "n", "clock_offset_us": 0}
    own = {"name": "horovod", "ph": "M", "pid": 0, "args": {**START["args"], **me}}
    events = [
        START, own, tensor(1, "a"),
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 100, "pid": 1, "args": {"tensor": "a"}},
        {"ph": "X", "name": "1", "ts": 101, "pid": 1, "dur": 0},
        {"ph": "E", "ts": 400, "pid": 1, "args": {"last_rank": 0}},
        {"ph": "X", "name": "QUEUED", "ts": 390, "dur": 5, "pid": 1, "args": {"tensor": "a"}},
        {"ph": "B", "name": "ALLREDUCE", "ts": 410, "pid": 1, "args": args},
        {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 430, "pid": 1, "args": {"tensor": "a"}},
        {"ph": "X", "name": "1", "ts": 430, "pid": 1, "dur": 0},
        {"ph": "E", "ts": 440, "pid": 1, "args": {"dtype": "float32", "shape": "[2]"}},
        {"ph": "E", "ts": 600, "pid": 1, "args": {"last_rank": 1}},
        {"ph": "B", "name": "ALLREDUCE", "ts": 610, "pid": 1, "args": {**args, "last_rank": 1}},
        {"ph": "E", "ts": 620, "pid": 1, "args": {"dtype": "float32", "shape": "[2]"}},
    ]  # fmt: skip
    trace = trace_of(events)
    first, second = trace.operations
    assert [time - EPOCH for time in first[3:7]] == [390, 400, 410, 440] and first.last_rank == 0
    assert [time - EPOCH for time in second[3:7]] == [430, 600, 610, 620] and second.last_rank == 1
    assert [time - EPOCH for _, time, _, _ in trace.others] == [101, 430] and not trace.alone


def test_a_barrier_with_a_span_is_counted_once():
    spans = [
        ("NEGOTIATE_BARRIER", 5, 10),
        ("BARRIER", 15, 1),
        ("NEGOTIATE_JOIN", 20, 5),
        ("NEGOTIATE_JOIN", 30, 5),
    ]
    events = [{"ph": "X", "name": n, "ts": ts, "dur": d, "args": {"tensor": n[-4:]}} for n, ts, d in spans]
    assert [op.kind for op in trace_of([START, *events]).operations] == ["BARRIER", "JOIN", "JOIN"]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=3)
    | st.sampled_from(["0", "ALLREDUCE", "QUEUED"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["tensor", "n", "rank"]), inner)
    ),
    max_leaves=4,
)
KEYS = ["ph", "name", "ts", "dur", "pid", "tid", "args"]
STRANGE = st.dictionaries(st.sampled_from(KEYS), JSON | st.sampled_from(list("MXBEi")), max_size=7)


@given(st.lists(STRANGE, max_size=8))
def test_strange_events_are_passed_over(strange):
    """Other tools write into such files, too: what is ours is still read."""
    ours = Imagined(size=1, steps=1, tensors=1).events()[0]
    operations = trace_of(
        [*ours[:1], *(one for one in strange if one.get("ph") != "M"), *ours[1:]]
    ).operations
    assert any(op.name == "grad.0" and op.bytes == 1 << 20 for op in operations)
