# SPDX-License-Identifier: Apache-2.0
"""The surface of horovod.numpy: forms, arguments, kinds of memory."""

from __future__ import annotations

import array
import inspect

import numpy as np
import pytest
from tests_support import shared_world

import horovod.numpy as hvd

ASYNC = [name for name in hvd.__all__ if name.endswith(("_async", "_async_"))]


def test_everything_listed_exists_and_is_documented():
    for name in hvd.__all__:
        value = getattr(hvd, name)
        if callable(value):
            assert value.__doc__, name


@pytest.mark.parametrize("name", ASYNC)
def test_asynchronous_forms_take_the_arguments_of_the_blocking_ones(name):
    blocking = name.replace("_async", "")
    mine, other = (inspect.signature(getattr(hvd, n)).parameters for n in (name, blocking))
    assert list(mine) == list(other) and "in_place" not in mine
    assert getattr(hvd, name).__name__ == name


def forms():
    """Every form of every verb gives the same result."""
    import horovod.numpy as hvd

    n, me = hvd.size(), hvd.rank()
    x = np.arange(n * 4, dtype=np.float32) + me
    arguments = {
        "allreduce": {"op": hvd.Sum},
        "grouped_allreduce": {"op": hvd.Sum},
        "broadcast": {"root_rank": n - 1},
        "reducescatter": {"op": hvd.Sum},
        "grouped_reducescatter": {"op": hvd.Sum},
    }
    wrong = []
    for verb in ("allreduce", "grouped_allreduce", "broadcast", "allgather", "grouped_allgather", "alltoall",
                 "reducescatter", "grouped_reducescatter"):  # fmt: skip
        keywords = arguments.get(verb, {})
        single = not verb.startswith("grouped")
        results = {}
        for suffix in ("", "_", "_async", "_async_"):
            function = getattr(hvd, verb + suffix, None)
            if function is None:
                continue
            given = x.copy() if single else [x.copy(), x[:n].copy()]
            result = function(given, name=verb, **keywords)
            if "async" in suffix:
                result = hvd.synchronize(result)
            if suffix in ("_", "_async_"):
                same = result is given if single else all(a is b for a, b in zip(result, given))
                if not same:
                    wrong.append(f"{verb}{suffix} gave another object")
            if verb == "alltoall" and suffix == "_async":
                result = result[0]
            results[suffix] = [result] if single else result
        first = results.pop("")
        for suffix, other in results.items():
            if any(a.tobytes() != b.tobytes() or a.shape != b.shape for a, b in zip(first, other)):
                wrong.append(f"{verb}{suffix} differs")
    return wrong


@pytest.mark.parametrize("size", [1, 2])
def test_all_forms_agree(size):
    assert shared_world(size).run(forms) == [[]] * size


def memories():
    import horovod.numpy as hvd

    n = hvd.size()
    results = {}
    strided = np.zeros((4, 6), np.float32)
    view = strided[::2, 1::2]
    view[...] = 1
    results["strided"] = hvd.allreduce_(view, op=hvd.Sum, name="strided") is view and (view == n).all()
    results["rest untouched"] = strided.sum() == view.sum()
    results["transposed"] = bool((hvd.allreduce(np.ones((2, 3)).T, op=hvd.Sum, name="T") == n).all())
    numbers = array.array("d", [1.0, 2.0])
    hvd.allreduce_(numbers, op=hvd.Sum, name="array.array")
    results["array.array"] = list(numbers) == [n, 2.0 * n]
    data = bytearray(b"\x01\x02")
    results["bytearray"] = hvd.allreduce_(data, op=hvd.Sum, name="bytearray") is data and data[1] == 2 * n
    window = memoryview(bytearray(4))
    hvd.broadcast_(window, 0, name="memoryview")
    results["memoryview"] = bytes(window) == bytes(4)
    scalar = hvd.allreduce(2, op=hvd.Sum, name="scalar")
    results["scalar"] = isinstance(scalar, np.int64) and scalar == 2 * n
    zero_d = hvd.allreduce(np.array(2.0), op=hvd.Sum, name="zero_d")
    results["zero_d"] = isinstance(zero_d, np.ndarray) and zero_d.shape == ()
    frozen = np.ones(3)
    frozen.flags.writeable = False
    results["read-only input"] = bool((hvd.allreduce(frozen, op=hvd.Sum, name="frozen") == n).all())
    gathered = hvd.allgather(np.ones(5, np.float32), name="owned")
    gathered[0] = 7  # the engine's memory is ours now
    del frozen
    results["owned"] = gathered.flags.writeable and gathered[0] == 7 and len(gathered) == 5 * n
    results["empty group"] = hvd.grouped_allreduce([], name="empty") == []
    return [name for name, right in results.items() if not right]


@pytest.mark.parametrize("size", [1, 2])
def test_kinds_of_memory(size):
    assert shared_world(size).run(memories) == [[]] * size


def polling():
    import time

    import horovod.numpy as hvd

    handle = hvd.allreduce_async(np.ones(3), op=hvd.Sum, name="polled")
    while not hvd.poll(handle):
        time.sleep(0.001)
    result = hvd.synchronize(handle).tolist()
    errors = []
    for call in (hvd.synchronize, hvd.poll):
        try:
            call(handle)
        except ValueError as error:
            errors.append(str(error))
    return result, len(errors)


def test_poll_then_synchronize_once():
    assert shared_world(2).run(polling) == [([2.0] * 3, 2)] * 2


def counters():
    import horovod.numpy as hvd

    before = hvd.metrics()
    for _ in range(10):
        hvd.allreduce([1.0], name="counted")
    after = hvd.metrics()
    return {key: after[key] - before[key] for key in after if isinstance(after[key], int)}


def test_metrics_count():
    for delta in shared_world(2).run(counters):
        assert delta["tensors"] >= 10


def mixed_types():
    import ml_dtypes

    import horovod.numpy as hvd

    x = np.array([1.5, 2.5, -3.0], ml_dtypes.bfloat16)
    got = hvd.allreduce(x, op=hvd.Sum, name="bf16")
    return str(got.dtype), got.astype(np.float32).tolist()


def test_bfloat16_is_kept():
    pytest.importorskip("ml_dtypes")
    assert shared_world(2).run(mixed_types) == [("bfloat16", [3.0, 5.0, -6.0])] * 2
