# SPDX-License-Identifier: Apache-2.0
"""Ranks that disagree about a tensor: an error everywhere, naming it and both sides; then life goes on."""

from __future__ import annotations

import numpy as np
import pytest
from tests_support import shared_world

F32, F64, I32 = np.float32, np.float64, np.int32

# name: (what rank 0 does, what the others do, words of the error). Each is (verb, array arguments, keywords).
CASES = {
    "dtype": (
        ("allreduce", ((4,), F32), {}),
        ("allreduce", ((4,), F64), {}),
        ["Mismatched data types", "float32", "float64"],
    ),
    "shape": (
        ("allreduce", ((4,), F32), {}),
        ("allreduce", ((2, 2), F32), {}),
        ["Mismatched ALLREDUCE tensor shapes", "[4]", "[2, 2]"],
    ),
    "reduction": (
        ("allreduce", ((4,), F32), {"op": 1}),
        ("allreduce", ((4,), F32), {"op": 3}),
        ["Mismatched reduction operation", "1", "3"],
    ),
    "prescale": (
        ("allreduce", ((4,), F32), {"prescale_factor": 2.0}),
        ("allreduce", ((4,), F32), {"prescale_factor": 3.0}),
        ["Mismatched prescale and/or postscale factors", "2", "3"],
    ),
    "postscale": (
        ("allreduce", ((4,), F32), {"postscale_factor": 2.0}),
        ("allreduce", ((4,), F32), {}),
        ["Mismatched prescale and/or postscale factors", "2", "1"],
    ),
    "root": (
        ("broadcast", ((4,), F32), {"root_rank": 0}),
        ("broadcast", ((4,), F32), {"root_rank": 1}),
        ["Mismatched BROADCAST root ranks", "0", "1"],
    ),
    "broadcast shape": (
        ("broadcast", ((4,), F32), {"root_rank": 0}),
        ("broadcast", ((5,), F32), {"root_rank": 0}),
        ["Mismatched BROADCAST tensor shapes", "[4]", "[5]"],
    ),
    "broadcast dtype": (
        ("broadcast", ((4,), F32), {"root_rank": 0}),
        ("broadcast", ((4,), I32), {"root_rank": 0}),
        ["Mismatched data types", "float32", "int32"],
    ),
    "gather ndim": (
        ("allgather", ((4,), F32), {}),
        ("allgather", ((4, 1), F32), {}),
        ["Mismatched ALLGATHER tensor shapes", "rank 1", "rank 2"],
    ),
    "gather dims": (
        ("allgather", ((1, 2), F32), {}),
        ("allgather", ((1, 3), F32), {}),
        ["Mismatched ALLGATHER tensor shapes", "dimension 1", "2", "3"],
    ),
    "gather scalar": (
        ("allgather", ((), F32), {}),
        ("allgather", ((), F32), {}),
        ["tried to ALLGATHER a rank-zero tensor"],
    ),
    "alltoall dims": (
        ("alltoall", ((6, 2), F32), {}),
        ("alltoall", ((6, 3), F32), {}),
        ["Mismatched ALLTOALL tensor shapes", "dimension 1", "2", "3"],
    ),
    "scatter shape": (
        ("reducescatter", ((4,), F32), {}),
        ("reducescatter", ((6,), F32), {}),
        ["Mismatched REDUCESCATTER tensor shapes", "[4]", "[6]"],
    ),
    "scatter scale": (
        ("reducescatter", ((4,), F32), {"op": 0}),
        ("reducescatter", ((4,), F32), {"op": 1}),
        ["ismatched"],
    ),
}


def disagree(name, first, second):
    """Each rank does its side; returns the error it got, and the result of an allreduce after it."""
    import horovod.numpy as hvd

    verb, (shape, dtype), keywords = first if hvd.rank() == 0 else second
    error = None
    try:
        getattr(hvd, verb)(np.zeros(shape, dtype), name=f"case {name}", **keywords)
    except Exception as caught:
        error = type(caught).__name__, str(caught)
    again = hvd.allreduce(np.ones(3, F32), op=hvd.Sum, name=f"after {name}")
    same = hvd.allreduce(np.ones(2, F32), op=hvd.Sum, name=f"case {name}")  # the name is free again
    return error, again.tolist(), same.tolist()


@pytest.mark.parametrize("size, hosts", [(2, None), (3, None), (3, "localhost:2,127.0.0.1:1")])
@pytest.mark.parametrize("case", CASES)
def test_disagreement_is_an_error_on_every_rank_and_the_engine_stays_usable(case, size, hosts):
    first, second, words = CASES[case]
    for error, again, same in shared_world(size, hosts=hosts).run(disagree, case, first, second):
        assert error is not None, "no error"
        kind, text = error
        assert kind == "RanksDisagree", error
        assert f"case {case}" in text, f"the tensor is not named: {text}"
        for word in words:
            assert word in text, text
        assert again == [float(size)] * 3 and same == [float(size)] * 2


def mixed_operations():
    import horovod.numpy as hvd
    from horovod.common import constants as c
    from horovod.common import engine

    array = np.zeros(4, F32)
    address = array.ctypes.data
    kind = c.ALLREDUCE if hvd.rank() == 0 else c.BROADCAST
    handle = engine.submit([engine.request(kind, "same name", c.FLOAT32, (4,), address, address, root=0)])
    try:
        engine.wait(handle)
    except hvd.HorovodInternalError as error:
        return str(error)
    finally:
        engine.release(handle)
    return ""


def test_different_operations_under_one_name():
    for text in shared_world(2).run(mixed_operations):
        assert "Mismatched operations" in text and "ALLREDUCE" in text and "BROADCAST" in text
        assert "same name" in text


def cached_then_changed():
    import horovod.numpy as hvd

    results = []
    for step in range(30):
        size = 8 if step % 10 else 5  # a changed shape invalidates the cached description on all ranks
        results.append(hvd.allreduce(np.full(size, hvd.rank(), F32), op=hvd.Sum, name="cached").tolist())
    try:
        hvd.allreduce(np.ones(8 + hvd.rank(), F32), name="cached")
        results.append("no error")
    except hvd.HorovodInternalError as error:
        results.append(str(error))
    results.append(hvd.allreduce(np.ones(8, F32), op=hvd.Sum, name="cached").tolist())
    return results


def test_a_cached_description_that_changes_is_seen():
    for results in shared_world(3).run(cached_then_changed):
        for step in range(30):
            assert results[step] == [3.0] * (8 if step % 10 else 5)
        assert "Mismatched ALLREDUCE tensor shapes" in results[30]
        assert results[31] == [3.0] * 8


def groups_that_differ():
    import horovod.numpy as hvd

    mine = [np.ones(2, F32), np.ones(3 if hvd.rank() == 0 else 4, F32), np.ones(4, F32)]
    try:
        hvd.grouped_allreduce(mine, name="group")
        return "no error", None
    except hvd.HorovodInternalError as error:
        return str(error), hvd.allreduce(1.0, op=hvd.Sum, name="after group")


def test_a_group_with_one_wrong_member_fails_as_a_whole():
    for text, after in shared_world(2).run(groups_that_differ):
        assert "Mismatched ALLREDUCE tensor shapes" in text and "group" in text
        assert after == 2.0
