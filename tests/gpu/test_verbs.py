# SPDX-License-Identifier: Apache-2.0
"""Every verb on CUDA tensors of every type, each way, against what the host works out."""

from __future__ import annotations

import pytest
import torch
from real_gpu import enter, gpu_world, report, show, went

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
SHAPES = ((), (1,), (17,), (3, 5), (0, 4), (4096,), (65_537,), (1_000_003,))


def sent(rank: int, shape, dtype, seed: int = 0) -> torch.Tensor:
    """What a rank sends: small whole numbers, so that sums are exact in every type."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(0, 4, shape, generator=generator).to(dtype)


def all_sent(size: int, shape, dtype, seed: int = 0):
    return [sent(rank, shape, dtype, seed) for rank in range(size)]


def same(out: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    assert out.is_cuda and out.dtype is wanted.dtype and out.shape == wanted.shape, what
    assert torch.equal(out.cpu(), wanted), f"{what}: {out.flatten()[:8]} is not {wanted.flatten()[:8]}"


def reductions() -> None:
    import horovod.torch as hvd

    size, rank = hvd.size(), hvd.rank()
    for dtype in (*FLOATS, *INTEGERS, torch.bool):
        for shape in SHAPES:
            parts = all_sent(size, shape, dtype)
            stack = torch.stack(parts)
            mine = parts[rank].cuda()
            cases = {hvd.Max: stack.amax(0), hvd.Min: stack.amin(0)}
            if dtype is not torch.bool:
                cases[hvd.Sum] = stack.sum(0).to(dtype)
                cases[hvd.Product] = stack.double().prod(0).to(dtype)
            if dtype in FLOATS:
                cases[hvd.Average] = (stack.double().sum(0) / size).to(dtype)
            for op, wanted in cases.items():
                same(hvd.allreduce(mine, op=op), wanted, f"allreduce {op} {dtype} {shape}")
            assert torch.equal(mine.cpu(), parts[rank])
            copy = mine.clone()
            assert hvd.allreduce_(copy, op=hvd.Max) is copy
            same(copy, cases[hvd.Max], "in place")


def scaled_and_askew() -> None:
    import horovod.torch as hvd

    size, rank = hvd.size(), hvd.rank()
    for count in (5, 70_001, 300_000):
        parts = all_sent(size, (count + 3,), torch.float32)
        total = torch.stack(parts).sum(0)
        x = parts[rank].cuda()
        same(hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), total * 2, "scaled")
        same(hvd.allreduce(x[1:], op=hvd.Sum), total[1:], "begins askew")
        strided = torch.stack([x, x], dim=1)[:, 0]
        same(hvd.allreduce(strided, op=hvd.Sum), total, "strided")
        if rank == 0:  # one rank alone has it askew, in place
            view = torch.cat([x[:1], x])[1:]
        else:
            view = x.clone()
        same(hvd.allreduce_(view, op=hvd.Sum), total, "askew on one rank")
        half = hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.bf16)
        same(half, total, "compressed")
        integers = parts[rank].int().cuda()
        same(hvd.allreduce(integers, op=hvd.Sum, postscale_factor=0.5),
             (total.int() * 0.5).int(), "scaled integers")  # fmt: skip


def grouped() -> None:
    import horovod.torch as hvd

    size, rank = hvd.size(), hvd.rank()
    shapes = [(n,) for n in (1, 7, 0, 1000, 33, 5_000_000, 64, 3)]
    for dtype in (torch.float32, torch.bfloat16):
        parts = [all_sent(size, shape, dtype, seed) for seed, shape in enumerate(shapes)]
        outs = hvd.grouped_allreduce([p[rank].cuda() for p in parts], op=hvd.Sum)
        for out, part in zip(outs, parts):
            same(out, torch.stack(part).sum(0).to(dtype), f"grouped {dtype} {tuple(out.shape)}")
        handles = [
            hvd.allreduce_async(p[rank].cuda(), op=hvd.Sum, name=f"many.{i}") for i, p in enumerate(parts)
        ]
        for handle, part in zip(handles, parts):
            same(hvd.synchronize(handle), torch.stack(part).sum(0).to(dtype), "many at once")
        rows = [all_sent(size, (size * 2, n), dtype, n) for n in (1, 3, 700)]
        for out, part in zip(hvd.grouped_allgather([p[rank][: rank + 1].cuda() for p in rows]), rows):
            same(out, torch.cat([p[: r + 1] for r, p in enumerate(part)]), "grouped allgather")
        for out, part in zip(hvd.grouped_reducescatter([p[rank].cuda() for p in rows], op=hvd.Sum), rows):
            same(out, torch.stack(part).sum(0).to(dtype)[2 * rank : 2 * rank + 2], "grouped reducescatter")


def movers() -> None:
    import horovod.torch as hvd

    size, rank = hvd.size(), hvd.rank()
    for dtype in (*FLOATS, *INTEGERS, torch.bool):
        for width in (1, 3, 40_001):
            parts = all_sent(size, (size + 3, width), dtype)
            x = parts[rank].cuda()
            rows = lambda r: (r * 2 + 1) % (size + 3)  # noqa: E731  unequal, sometimes none
            same(
                hvd.allgather(x[: rows(rank)]),
                torch.cat([parts[r][: rows(r)] for r in range(size)]),
                "allgather",
            )
            for root in (0, size - 1):
                same(hvd.broadcast(x, root), parts[root], "broadcast")
            splits = torch.tensor(
                [(rank + to) % 2 + (3 if to == 0 else 0) for to in range(size)], dtype=torch.int32
            )
            rest = size + 3 - int(splits.sum())
            if rest >= 0:
                splits[-1] += rest
            else:
                splits = torch.tensor([1] * (size - 1) + [4], dtype=torch.int32)
            everybodys = hvd.allgather(splits[None])
            out, received = hvd.alltoall(x, splits)
            assert received.cpu().tolist() == everybodys[:, rank].tolist()
            pieces = [parts[r].split(everybodys[r].tolist())[rank] for r in range(size)]
            same(out, torch.cat(pieces), f"alltoall {dtype} {width}")
            if dtype is not torch.bool:
                total = torch.stack(parts).sum(0).to(dtype)
                share = [(size + 3) // size + (r < (size + 3) % size) for r in range(size)]
                same(
                    hvd.reducescatter(x, op=hvd.Sum),
                    total.split(share)[rank],
                    f"reducescatter {dtype} {width}",
                )


def adasum() -> None:
    import horovod.torch as hvd

    size, rank = hvd.size(), hvd.rank()
    for dtype in (torch.float32, torch.float64, torch.float16):
        for count in (5, 100_003):
            generator = torch.Generator().manual_seed(rank)
            x = torch.randn(count, generator=generator, dtype=torch.float64).to(dtype)
            on_host = hvd.allreduce(x, op=hvd.Adasum)
            on_gpu = hvd.allreduce(x.cuda(), op=hvd.Adasum).cpu()
            tolerance = 2e-3 if dtype is torch.float16 else 1e-5
            torch.testing.assert_close(on_gpu, on_host, rtol=tolerance, atol=tolerance)
    assert size & (size - 1) == 0


def sets_and_joins() -> None:
    import horovod.torch as hvd

    size, rank = hvd.size(), hvd.rank()
    some = hvd.add_process_set(list(range(size - 1))) if size > 2 else hvd.add_process_set([0])
    others = hvd.add_process_set([0, size - 1]) if size > 2 else hvd.add_process_set([1])
    for one in (some, others):
        if one.included():
            out = hvd.allreduce(
                torch.full((100_000,), float(rank), device="cuda"), op=hvd.Sum, process_set=one
            )
            assert out.eq(float(sum(one.ranks))).all()
    hvd.barrier()
    for one in (some, others):
        assert hvd.remove_process_set(one)
    for turn in range(3):
        if turn <= rank:
            out = hvd.allreduce(torch.ones(50_000, device="cuda"), op=hvd.Sum, name=f"join.{turn}")
            assert out.eq(float(sum(turn <= r for r in range(size)))).all(), turn
    assert hvd.join() >= 0


def host_and_gpu_in_one_job() -> None:
    import horovod.torch as hvd
    from horovod.common.exceptions import HorovodInternalError

    size, rank = hvd.size(), hvd.rank()
    on_host = [hvd.allreduce_async(torch.full((1000,), 1.0), op=hvd.Sum, name=f"h{i}") for i in range(20)]
    on_gpu = [
        hvd.allreduce_async(torch.full((1000,), 2.0, device="cuda"), op=hvd.Sum, name=f"g{i}")
        for i in range(20)
    ]
    for a, b in zip(on_gpu, on_host):
        out = hvd.synchronize(a)
        assert out.is_cuda and out.eq(2.0 * size).all()
        assert hvd.synchronize(b).eq(float(size)).all()
    try:
        hvd.allreduce(torch.ones(3, device="cuda" if rank == 0 else "cpu"), name="mixed")
    except HorovodInternalError as error:
        assert "mixed" in str(error) and "GPU" in str(error), str(error)
    else:
        raise AssertionError("a CUDA tensor was reduced with a host tensor")
    assert hvd.allreduce(torch.ones(3, device="cuda"), op=hvd.Sum).eq(float(size)).all()


CASES = [reductions, scaled_and_askew, grouped, movers, adasum, sets_and_joins, host_and_gpu_in_one_job]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_verbs(world, case):
    world.run(case, timeout=120)


def test_all_of_it_went_that_way(world):
    world.run(grouped, timeout=120)
    for found in world.run(report):
        assert went(world.way, found["sets"]), show(found)


def alone() -> None:
    enter()
    reductions()
    grouped()
    movers()


def test_a_world_of_one():
    made = gpu_world(1, "auto")
    made.run(alone, timeout=120)
    made.close()
