# SPDX-License-Identifier: Apache-2.0
"""What a rank is told at once, without asking the others."""

from __future__ import annotations

import numpy as np
import pytest
from tests_support import shared_world


def caught(function):
    try:
        function()
    except Exception as error:
        return type(error).__name__, str(error)
    return None, ""


def duplicate_name():
    import horovod.numpy as hvd

    first = hvd.allreduce_async(np.ones(3), name="twice") if hvd.rank() == 0 else None
    error = caught(lambda: hvd.allreduce(np.ones(3), name="twice")) if hvd.rank() == 0 else None
    if first is None:
        hvd.barrier()
        first = hvd.allreduce_async(np.ones(3), name="twice")
    else:
        hvd.barrier()
    return error, hvd.synchronize(first).tolist(), hvd.allreduce(np.ones(1), name="twice").tolist()


def test_the_same_name_twice_at_a_time():
    results = shared_world(2).run(duplicate_name)
    kind, text = results[0][0]
    assert kind == "ValueError"
    assert "with the same name as another tensor that is currently being processed" in text
    assert all(result[1:] == ([1.0] * 3, [1.0]) for result in results)


def wrong_arguments():
    import horovod.numpy as hvd

    n = hvd.size()
    others = hvd.add_process_set([0])
    stale = hvd.add_process_set([1])
    number = stale.process_set_id
    hvd.remove_process_set(stale)
    gone = hvd.ProcessSet([1])
    gone.process_set_id = number
    x = np.ones((n * 2, 2), np.float32)
    calls = {
        "unknown set": lambda: hvd.allreduce(x, process_set=gone),
        "root not in set": lambda: hvd.broadcast(x, 1, process_set=others),
        "root too high": lambda: hvd.broadcast(x, n),
        "root beyond numbers": lambda: hvd.broadcast(x, 2**40),
        "NUL in the name": lambda: hvd.allreduce(x, name="a\0b"),
        "splits sum": lambda: hvd.alltoall(x, [n * 2 + 1] + [0] * (n - 1)),
        "splits length": lambda: hvd.alltoall(x, [1] * (n + 1)),
        "uneven": lambda: hvd.alltoall(np.ones(n * 2 + 1)),
        "splits ndim": lambda: hvd.alltoall(x, [[1] * n]),
        "splits dtype": lambda: hvd.alltoall(x, [0.5] * n),
        "scatter op": lambda: hvd.reducescatter(x, op=hvd.Min),
        "scatter scalar": lambda: hvd.reducescatter(1.0),
        "complex": lambda: hvd.allreduce(np.ones(2, np.complex64)),
        "byte order": lambda: hvd.allreduce(np.ones(2, ">f4")),
        "op": lambda: hvd.allreduce(x, op=17),
        "list in place": lambda: hvd.allreduce_([1.0, 2.0]),
        "read-only in place": lambda: hvd.allreduce_(np.frombuffer(b"12345678")),
        "handle": lambda: hvd.synchronize(10**9),
        "poll": lambda: hvd.poll(10**9),
    }
    if hvd.rank() != 0:
        calls["not a member"] = lambda: hvd.allreduce(x, process_set=others)
        calls["not a member of barrier"] = lambda: hvd.barrier(process_set=others)
        del calls["root not in set"]
    errors = {name: caught(call) for name, call in calls.items()}
    hvd.barrier()
    hvd.remove_process_set(others)
    return errors, float(hvd.allreduce(1.0, op=hvd.Sum, name="fine"))


WORDS = {
    "unknown set": "does not exist, or has not been registered",
    "root not in set": "broadcast received invalid root rank 1 for provided process set",
    "root too high": "invalid root rank 2",
    "root beyond numbers": "invalid root rank 1099511627776",
    "NUL in the name": "it contains a NUL character",
    "splits sum": "Sum of splits entries is greater than the first dimension of tensor.",
    "splits length": "Number of entries in splits does not equal number of workers.",
    "uneven": "splits not provided, but first dimension of tensor is not an even multiple of the number of",
    "splits ndim": "alltoall expects a 1D splits tensor",
    "splits dtype": "alltoall expects splits to contain 32-bit integer elements.",
    "scatter op": "Reducescatter currently only supports AVERAGE and SUM.",
    "scatter scalar": "does not support scalar inputs",
    "complex": "complex64 is not supported",
    "byte order": ">f4 is not supported",
    "op": "is not a reduction",
    "list in place": "has no memory to write into",
    "read-only in place": "read-only",
    "handle": "Handle 1000000000 was not created or has been cleared.",
    "poll": "Handle 1000000000 was not created or has been cleared.",
    "not a member": "Rank 1 is not a member of the provided process set.",
    "not a member of barrier": "Rank 1 is not a member of the provided process set.",
}


def test_wrong_arguments_are_told_at_once():
    seen = set()
    for errors, fine in shared_world(2).run(wrong_arguments):
        for name, (kind, text) in errors.items():
            assert kind in ("ValueError", "TypeError"), f"{name}: {kind} {text}"
            assert WORDS[name] in text, f"{name}: {text}"
            seen.add(name)
        assert fine == 2.0
    assert seen == set(WORDS)


def test_an_unregistered_set_is_a_type_error():
    def use():
        import horovod.numpy as hvd

        return caught(lambda: hvd.allreduce(1.0, process_set=hvd.ProcessSet([0])))

    for kind, text in shared_world(2).run(use):
        assert kind == "TypeError" and "not registered" in text


def abandoned():
    """Handles that are dropped before completion must not free memory the engine still uses."""
    import gc

    import horovod.numpy as hvd
    from horovod.common import engine, handles

    for i in range(50):
        array = np.ones(100_000, np.float32)
        handle = handles.table.pop(hvd.allreduce_async(array, name=f"dropped.{i}"))
        engine.abandon(handle._submission, handle)
        del array, handle
        gc.collect()
    return float(hvd.allreduce(1.0, op=hvd.Sum, name="after dropped"))


def test_released_before_completion():
    assert shared_world(2).run(abandoned) == [2.0, 2.0]


@pytest.mark.parametrize("value", [[1, 2], (1.5,), 3, 2.5, True, bytearray(b"ab"), memoryview(b"ab"), b"ab"])
def test_anything_with_memory_or_numbers(value):
    def reduce(value):
        import horovod.numpy as hvd

        return np.asarray(hvd.allreduce(value, op=hvd.Max))

    for got in shared_world(1).run(reduce, bytes(value) if isinstance(value, memoryview) else value):
        want = np.frombuffer(value, np.uint8) if isinstance(value, (bytes, memoryview)) else np.asarray(value)
        np.testing.assert_array_equal(got, want)
