# SPDX-License-Identifier: Apache-2.0
"""Layouts and kinds of tensor: whatever torch calls a tensor goes in, and the same kind comes out."""

from __future__ import annotations

import pytest
import torch
from tests_support import shared_world


def layouts() -> None:
    import horovod.torch as hvd

    n, r = hvd.size(), hvd.rank()
    base = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).view(2, 3, 4, 5)
    views = {
        "channels_last": base.contiguous(memory_format=torch.channels_last),
        "transposed": base.transpose(1, 3),
        "sliced": base[:, 1:, ::2],
        "expanded": base[:1, :1].expand(3, 2, 4, 5),
        "flipped": base.flip(0)[1:],
        "0-dim": torch.tensor(3.0),
        "0-dim of a view": base[0, 0, 0, 1],
        "empty": torch.empty(0, 4),
        "empty view": base[:, :0],
    }
    for name, view in views.items():
        kept = view.clone()
        out = hvd.allreduce(view, op=hvd.Sum)
        torch.testing.assert_close(out, kept * n, msg=lambda m, k=name: f"{k}: {m}")
        torch.testing.assert_close(view, kept)
        if name == "channels_last":
            assert out.is_contiguous(memory_format=torch.channels_last)
        handle = hvd.allreduce_async(view, op=hvd.Sum)
        torch.testing.assert_close(hvd.synchronize(handle), kept * n)
        sent = hvd.broadcast(view * (r + 1), 1)
        torch.testing.assert_close(sent, kept * 2)
        if view.dim():
            torch.testing.assert_close(hvd.allgather(view), torch.cat([kept] * n))
            torch.testing.assert_close(hvd.reducescatter(torch.cat([view] * n), op=hvd.Sum), kept * n)
        if name != "expanded":
            target = view.clone(memory_format=torch.preserve_format)
            assert hvd.allreduce_(target, op=hvd.Sum) is target
            torch.testing.assert_close(target, kept * n)
            target = (view * (r + 1)).clone(memory_format=torch.preserve_format)
            assert hvd.broadcast_(target, 1) is target
            torch.testing.assert_close(target, kept * 2)


def in_place_view() -> None:
    import horovod.torch as hvd

    whole = torch.ones(4, 4)
    hvd.allreduce_(whole[:, 1:3], op=hvd.Sum)  # part of a bigger tensor
    assert whole[:, 1:3].eq(hvd.size()).all() and whole[:, 0].eq(1).all() and whole[:, 3].eq(1).all()
    parameter = torch.nn.Parameter(torch.full((3,), float(hvd.rank())))
    hvd.broadcast_(parameter, 1)
    assert parameter.requires_grad and parameter.is_leaf and parameter.tolist() == [1.0] * 3


def mixed_layouts() -> None:
    import horovod.torch as hvd

    base = torch.arange(2.0 * 3 * 4 * 5).view(2, 3, 4, 5)
    mine = base.contiguous(memory_format=torch.channels_last) if hvd.rank() == 0 else base
    torch.testing.assert_close(hvd.allreduce(mine, op=hvd.Sum), base * hvd.size())
    torch.testing.assert_close(hvd.broadcast(mine, 0), base)


def unusual_dtypes() -> None:
    import horovod.torch as hvd

    n = hvd.size()
    z = torch.tensor([1 + 2j, 3 - 1j])
    torch.testing.assert_close(hvd.allreduce(z, op=hvd.Sum), z * n)
    torch.testing.assert_close(hvd.allreduce(z.conj(), op=hvd.Average), z.conj().resolve_conj())
    torch.testing.assert_close(hvd.allreduce(z.conj().imag, op=hvd.Sum), z.conj().imag * n)
    torch.testing.assert_close(hvd.allreduce_(z.clone(), op=hvd.Sum), z * n)
    torch.testing.assert_close(hvd.allreduce(torch.tensor(1j), op=hvd.Sum), torch.tensor(1j * n))
    with pytest.raises(ValueError, match="is not supported"):
        hvd.allreduce(z, op=hvd.Max)
    flags = torch.tensor([hvd.rank() == 0, True, False])
    assert hvd.allreduce(flags, op=hvd.Max).tolist() == [True, True, False]
    assert hvd.allreduce(flags, op=hvd.Min).tolist() == [False, True, False]
    if hasattr(torch, "float8_e4m3fn"):
        eighth = torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn)
        assert hvd.broadcast(eighth, 0).float().tolist() == [1.0, 2.0]
        assert hvd.allgather(eighth).float().tolist() == [1.0, 2.0] * n
        with pytest.raises(ValueError, match="is not supported"):
            hvd.allreduce(eighth)


def sparse() -> None:
    import horovod.torch as hvd

    n, r = hvd.size(), hvd.rank()
    tensor = torch.sparse_coo_tensor([[r, 2, 2]], torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), (5, 2))
    dense = sum(torch.sparse_coo_tensor([[k, 2, 2]], tensor._values(), (5, 2)).to_dense() for k in range(n))
    torch.testing.assert_close(hvd.allreduce(tensor, op=hvd.Sum).to_dense(), dense)
    finish = hvd.sparse_allreduce_async(tensor, "sparse", hvd.Average)
    result = finish()
    assert result.is_sparse and result.shape == (5, 2)
    torch.testing.assert_close(result.to_dense(), dense / n)
    empty = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0, 2), (5, 2))
    assert hvd.allreduce(empty).to_dense().eq(0).all()
    mixed = hvd.allreduce(tensor if r == 0 else empty, op=hvd.Sum)  # only one rank has any rows
    assert mixed.to_dense()[2].tolist() == [8.0, 10.0]
    with pytest.raises(ValueError, match="dense tensor"):
        hvd.broadcast(tensor, 0)


def _point_elsewhere(tensor: torch.Tensor) -> None:
    tensor.data = torch.zeros_like(tensor)


def _set_elsewhere(tensor: torch.Tensor) -> None:
    tensor.set_(torch.zeros_like(tensor))


def _resize(tensor: torch.Tensor) -> None:
    with pytest.raises(RuntimeError, match="resiz"):
        tensor.untyped_storage().resize_(0)


def memory_stays_while_under_way() -> None:
    """What a user does to a tensor that the engine works on does not take the memory away."""
    import horovod.torch as hvd

    for change in (_point_elsewhere, _set_elsewhere, _resize):
        for start in (hvd.allreduce_async, hvd.allreduce_async_):
            tensor = torch.full((1 << 20,), float(hvd.rank() + 1))
            go = f"{change.__name__}.{start.__name__}"
            if hvd.rank() > 0:  # the first rank submits, and changes its tensor, before anybody can answer
                hvd.barrier()
            handle = start(tensor, name=go, op=hvd.Sum)
            change(tensor)
            filler = [torch.full((1 << 20,), -1.0) for _ in range(4)]  # would take the place of freed memory
            if hvd.rank() == 0:
                hvd.barrier()
            assert hvd.synchronize(handle).eq(sum(range(1, hvd.size() + 1))).all(), go
            assert all(part.eq(-1).all() for part in filler), go


@pytest.mark.parametrize(
    "case", [memory_stays_while_under_way, layouts, in_place_view, mixed_layouts, unusual_dtypes, sparse]
)
def test_tensors(case):
    shared_world(2).run(case, timeout=300)


def test_layouts_on_three_ranks():
    shared_world(3).run(layouts, timeout=300)
