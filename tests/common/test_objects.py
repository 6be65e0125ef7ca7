# SPDX-License-Identifier: Apache-2.0
"""Python objects as collectives."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests_support import shared_world

from horovod.common import objects

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(values)
def test_messages_carry_any_value(value):
    assert objects.loads(objects.dumps(value)) == value


def test_arrays_travel_beside_the_pickle_and_come_back_writable():
    array = np.arange(100_000, dtype=np.float32)
    message = objects.dumps({"a": array, "f": lambda x: x + 1})
    assert len(message) < array.nbytes + 2000
    back = objects.loads(message)
    np.testing.assert_array_equal(back["a"], array)
    back["a"][0] = 5
    assert back["f"](1) == 2


def exchange():
    import horovod.numpy as hvd

    me, n = hvd.rank(), hvd.size()
    results = {}
    mine = {"rank": me, "data": list(range(me * 1000)), "array": np.full(me, me)}
    everything = hvd.allgather_object(mine)
    results["gathered"] = [(o["rank"], len(o["data"]), o["array"].tolist()) for o in everything]
    results["different types"] = hvd.allgather_object(["x"] if me == 0 else me)
    results["empty"] = hvd.allgather_object("", name="empty")
    for root in range(n):
        source = {"from": root, "big": b"x" * 3_000_000} if me == root else None
        got = hvd.broadcast_object(source, root)  # None elsewhere, and no name
        results[f"from {root}"] = (got["from"], len(got["big"]), got is source)
    members = [0, n - 1] if n > 2 else [1]
    pair = hvd.add_process_set(members)
    if pair.included():
        results["set"] = hvd.allgather_object(me, name="in set", process_set=pair)
        results["set broadcast"] = hvd.broadcast_object(me, n - 1, name="in set", process_set=pair)
    hvd.barrier()
    hvd.remove_process_set(pair)
    return results


def without_a_pickle():
    import threading

    import horovod.numpy as hvd

    def attempt(call):
        try:
            return call()
        except Exception as error:
            return type(error).__name__, str(error)

    mine = threading.Lock() if hvd.rank() == 0 else "fine"
    said = [
        attempt(lambda: hvd.broadcast_object(mine, 0, name="lock")),
        attempt(lambda: hvd.allgather_object(mine, name="locks")),
    ]
    return said, hvd.broadcast_object("next", 0)


def test_what_cannot_be_pickled_is_an_error_on_all_ranks_and_the_next_one_works():
    first, second = shared_world(2).run(without_a_pickle)
    assert first == ([("TypeError", "cannot pickle '_thread.lock' object")] * 2, "next")
    said, then = second
    assert then == "next"
    for kind, text in said:
        assert kind == "ValueError"
        assert re.search("rank 0 on .* could not send its object, .*: TypeError: cannot pickle", text)


@pytest.mark.parametrize("size", [2, 3])
def test_broadcast_and_gather(size):
    for rank, results in enumerate(shared_world(size).run(exchange)):
        assert results["gathered"] == [(r, r * 1000, [r] * r) for r in range(size)]
        assert results["different types"] == [["x"], *range(1, size)]
        assert results["empty"] == [""] * size
        for root in range(size):
            assert results[f"from {root}"] == (root, 3_000_000, rank == root)
        if "set" in results:
            assert (
                results["set"] == ([0, size - 1] if size > 2 else [1])
                and results["set broadcast"] == size - 1
            )
