# SPDX-License-Identifier: Apache-2.0
"""Every verb, in every form, for every dtype, on all ranks and on process sets, against plain torch.

A whole grid runs in one world: a case is a few hundred microseconds, a world is a second.
"""

from __future__ import annotations

import itertools
from typing import Any, List

import pytest
import torch
from tests_support import shared_world

SIZES = [2, 3, 4]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]
NEWER = [name for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)]  # torch 2.3 and later
MOVED = FLOATS + INTEGERS + NEWER + ["bool", "complex64", "complex128"]


def made(dtype: str, rank: int, shape: Any) -> torch.Tensor:
    """Rank's tensor: small integers, so that every sum is exact in every dtype."""
    generator = torch.Generator().manual_seed(rank + 17)
    values = torch.randint(0, 4, tuple(shape), generator=generator)
    if dtype.startswith("complex"):
        return torch.complex(values.double(), values.double() + 1).to(getattr(torch, dtype))
    return values.to(getattr(torch, dtype))


def sets_of(hvd: Any) -> List[Any]:
    """All ranks, the last two, and only the first."""
    sets = [hvd.global_process_set]
    if hvd.size() > 2:
        sets.append(hvd.add_process_set([hvd.size() - 2, hvd.size() - 1]))
    sets.append(hvd.add_process_set([0]))
    return sets


def expect(got: torch.Tensor, wanted: torch.Tensor, what: Any, failures: List[str]) -> None:
    try:
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    except AssertionError as error:
        failures.append(f"{what}: {error}")


def allreduce_grid(dtypes: List[str]) -> List[str]:
    import horovod.torch as hvd

    failures: List[str] = []
    forms = (
        "allreduce",
        "allreduce_",
        "allreduce_async",
        "allreduce_async_",
        "grouped_allreduce",
        "grouped_allreduce_",
        "grouped_allreduce_async",
        "grouped_allreduce_async_",
    )
    sets = sets_of(hvd)
    for process_set in sets:
        if not process_set.included():
            continue
        ranks = process_set.ranks
        for dtype, form, op, shape in itertools.product(
            dtypes, forms, ("Sum", "Average", "Min", "Max", "Product"), ((), (0,), (5,), (3, 4))
        ):
            stack = torch.stack([made(dtype, r, shape).to(torch.float64) for r in ranks])
            if op == "Sum":
                wanted = stack.sum(0)
            elif op == "Average":
                wanted = stack.sum(0) / len(ranks)
                if dtype in INTEGERS:
                    wanted = wanted.trunc()
            elif op == "Product":
                wanted = stack.prod(0)
            else:
                wanted = stack.amin(0) if op == "Min" else stack.amax(0)
            wanted = wanted.to(getattr(torch, dtype))
            inputs = [made(dtype, hvd.rank(), shape) for _ in range(3 if "grouped" in form else 1)]
            before = [t.clone() for t in inputs]
            call = getattr(hvd, form)
            arguments = dict(op=getattr(hvd, op), process_set=process_set)
            result = call(inputs if "grouped" in form else inputs[0], **arguments)
            if "async" in form:
                result = hvd.synchronize(result)
            outputs = list(result) if "grouped" in form else [result]
            what = (form, dtype, op, shape, ranks)
            for given, kept, output in zip(inputs, before, outputs):
                exact = dtype not in FLOATS or op != "Average" or len(ranks) != 3
                if exact:
                    expect(output, wanted, what, failures)
                else:
                    torch.testing.assert_close(output, wanted, rtol=1e-2, atol=1e-2)
                if form.endswith("_"):
                    if output is not given:
                        failures.append(f"{what}: not the same tensor")
                else:
                    expect(given, kept, (*what, "input changed"), failures)
    for process_set in sets[1:]:
        hvd.remove_process_set(process_set)
    return failures


def moving_grid(dtypes: List[str]) -> List[str]:
    import horovod.torch as hvd

    failures: List[str] = []
    sets = sets_of(hvd)
    for process_set in sets:
        if not process_set.included():
            continue
        ranks, me, n = process_set.ranks, process_set.rank(), process_set.size()
        for dtype in dtypes:
            kind = getattr(torch, dtype)
            # allgather: a different number of rows from each rank, none from the first
            rows = [made(dtype, r, (i, 2)) for i, r in enumerate(ranks)]
            wanted = torch.cat(rows)
            for form in ("allgather", "allgather_async", "grouped_allgather", "grouped_allgather_async"):
                given = [rows[me]] * 2 if "grouped" in form else rows[me]
                result = getattr(hvd, form)(given, process_set=process_set)
                if "async" in form:
                    result = hvd.synchronize(result)
                for output in result if "grouped" in form else [result]:
                    expect(output, wanted, (form, dtype, ranks), failures)
            # broadcast from every member
            for root, form in itertools.product(
                ranks, ("broadcast", "broadcast_", "broadcast_async", "broadcast_async_")
            ):
                for shape in ((), (0, 3), (7,), (2, 3)):
                    given = made(dtype, hvd.rank(), shape)
                    result = getattr(hvd, form)(given, root, process_set=process_set)
                    if "async" in form:
                        result = hvd.synchronize(result)
                    expect(result, made(dtype, root, shape), (form, dtype, root, shape, ranks), failures)
                    if form.endswith("_") and result is not given:
                        failures.append(f"{form} {dtype}: not the same tensor")
            # alltoall: member i sends i + j rows to member j, with and without splits
            splits = [[i + j for j in range(n)] for i in range(n)]
            sent = [made(dtype, r, (sum(splits[i]) + 1, 2)) for i, r in enumerate(ranks)]  # one row too many
            pieces = [s[: sum(splits[i])].split(splits[i]) for i, s in enumerate(sent)]
            wanted = torch.cat([pieces[i][me] for i in range(n)])
            received = torch.tensor([splits[i][me] for i in range(n)], dtype=torch.int32)
            for given in (splits[me], torch.tensor(splits[me], dtype=torch.int32)):
                for form in ("alltoall", "alltoall_async"):
                    result = getattr(hvd, form)(sent[me], given, process_set=process_set)
                    output, counts = hvd.synchronize(result) if "async" in form else result
                    expect(output, wanted, (form, dtype, ranks), failures)
                    expect(counts, received, (form, dtype, ranks, "splits"), failures)
            even = [made(dtype, r, (2 * n, 3)) for r in ranks]
            wanted = torch.cat([e.chunk(n)[me] for e in even])
            expect(hvd.alltoall(even[me], process_set=process_set), wanted, ("even", dtype, ranks), failures)
            # reducescatter: rows that do not divide, and fewer rows than ranks
            if dtype in FLOATS + ["int32", "int64"]:
                for count in (1, 2 * n + 1):
                    stack = torch.stack([made(dtype, r, (count, 2)).double() for r in ranks]).sum(0)
                    sizes = [count // n + (1 if i < count % n else 0) for i in range(n)]
                    wanted = stack.split(sizes)[me].to(kind)
                    given = made(dtype, hvd.rank(), (count, 2))
                    for form in (
                        "reducescatter",
                        "reducescatter_async",
                        "grouped_reducescatter",
                        "grouped_reducescatter_async",
                    ):
                        tensors = [given, given] if "grouped" in form else given
                        result = getattr(hvd, form)(tensors, op=hvd.Sum, process_set=process_set)
                        if "async" in form:
                            result = hvd.synchronize(result)
                        for output in result if "grouped" in form else [result]:
                            expect(output, wanted, (form, dtype, count, ranks), failures)
    for process_set in sets[1:]:
        hvd.remove_process_set(process_set)
    return failures


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtypes", [FLOATS, INTEGERS], ids=["floats", "integers"])
def test_allreduce(size, dtypes):
    for failures in shared_world(size).run(allreduce_grid, dtypes, timeout=300):
        assert not failures, "\n".join(failures[:5])


@pytest.mark.parametrize("size", SIZES)
def test_verbs_that_move_or_scatter(size):
    for failures in shared_world(size).run(moving_grid, MOVED, timeout=300):
        assert not failures, "\n".join(failures[:5])


def scaling() -> None:
    import horovod.torch as hvd

    n = hvd.size()
    x = torch.arange(4.0) + hvd.rank()
    total = torch.arange(4.0) * n + n * (n - 1) / 2
    options = dict(prescale_factor=0.5, postscale_factor=4.0)
    torch.testing.assert_close(hvd.allreduce(x, op=hvd.Sum, **options), total * 2)
    torch.testing.assert_close(hvd.allreduce(x, op=hvd.Average, **options), total * 2 / n)
    for output in hvd.grouped_allreduce([x, x], op=hvd.Sum, **options):
        torch.testing.assert_close(output, total * 2)
    rows = hvd.reducescatter(x.repeat(n, 1), op=hvd.Sum, **options)
    torch.testing.assert_close(rows, total[None] * 2)
    integers = hvd.allreduce(torch.full((3,), -(hvd.rank() + 1)), op=hvd.Average)  # truncates toward zero
    assert integers.tolist() == [int(-sum(range(1, n + 1)) / n)] * 3
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16):
        half = hvd.allreduce(x, op=hvd.Sum, compression=compression)
        assert half.dtype is torch.float32
        torch.testing.assert_close(half, total)
        rows = hvd.reducescatter(x.repeat(n, 1), compression=compression, op=hvd.Sum)
        torch.testing.assert_close(rows, total[None])
        assert hvd.allreduce(torch.ones(2, dtype=torch.int64), compression=compression).dtype is torch.int64


@pytest.mark.parametrize("size", [2, 3])
def test_scaling_and_compression(size):
    shared_world(size).run(scaling, timeout=300)


def average_argument() -> None:
    import warnings

    import horovod.torch as hvd

    for average, op in ((True, hvd.Average), (False, hvd.Sum)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            old = hvd.allreduce(torch.ones(2) + hvd.rank(), average=average)
        assert [w.category for w in caught] == [DeprecationWarning]
        torch.testing.assert_close(old, hvd.allreduce(torch.ones(2) + hvd.rank(), op=op))
    with pytest.raises(ValueError, match="supersedes average"):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)


def test_average_is_the_old_spelling_of_op():
    shared_world(2).run(average_argument, timeout=300)


def join_and_barrier() -> List[int]:
    import horovod.torch as hvd

    hvd.barrier()
    sums = []
    for step in range(hvd.rank() + 1):
        sums.append(hvd.allreduce(torch.ones(2), op=hvd.Sum, name=f"uneven.{step}"))
        hvd.allreduce(torch.ones(2))  # ranks with more data have called more without a name
    last = hvd.join()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    for step, output in enumerate(sums):
        assert output.tolist() == [hvd.size() - step] * 2
    assert 0 <= hvd.join() < hvd.size()  # can be repeated
    hvd.barrier()
    return [last]


@pytest.mark.parametrize("size", [2, 3])
def test_join_and_barrier(size):
    lasts = shared_world(size).run(join_and_barrier, timeout=300)
    assert all(last == [size - 1] for last in lasts), lasts


def unnamed_on_sets() -> None:
    import horovod.torch as hvd

    own = hvd.add_process_set([0])
    if hvd.rank() == 0:
        for _ in range(3):  # only this rank: must not disturb the numbering of the others' operations
            hvd.allreduce(torch.ones(1), process_set=own)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    hvd.remove_process_set(own)


def test_unnamed_operations_on_a_set_do_not_disturb_others():
    shared_world(2).run(unnamed_on_sets, timeout=300)
