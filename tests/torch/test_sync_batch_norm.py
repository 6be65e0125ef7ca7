# SPDX-License-Identifier: Apache-2.0
"""Batch norm over all ranks equals batch norm of the whole batch in one process."""

from __future__ import annotations

import copy

import pytest
import torch
from tests_support import shared_world


def same_as_one_process(dtype_name: str) -> None:
    import horovod.torch as hvd

    dtype = getattr(torch, dtype_name)
    n, r = hvd.size(), hvd.rank()
    tolerance = dict(rtol=1e-9, atol=1e-9) if dtype is torch.float64 else dict(rtol=2e-4, atol=2e-4)
    for shape, affine, momentum in (((5,), True, 0.1), ((3, 4, 4), True, None), ((2, 6), False, 0.3)):
        channels = shape[0]
        generator = torch.Generator().manual_seed(3)
        sizes = [3 + 2 * k for k in range(n)]  # uneven batches
        whole = torch.randn(sum(sizes), *shape, generator=generator).to(dtype) * 3 + 100
        target = torch.randn(whole.shape, generator=generator).to(dtype)
        plain_class = {1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm2d}[len(shape)]
        plain = plain_class(channels, momentum=momentum, affine=affine).to(dtype)
        layer = hvd.SyncBatchNorm(channels, momentum=momentum, affine=affine).to(dtype)
        if affine:
            for module in (plain, layer):
                module.weight.data.uniform_(generator=torch.Generator().manual_seed(1))
                module.bias.data.uniform_(generator=torch.Generator().manual_seed(2))
        for _ in range(2):
            x = whole.clone().requires_grad_()
            wanted = plain(x)
            (wanted * target).sum().backward()
            part = whole.split(sizes)[r].clone().requires_grad_()
            got = layer(part)
            (got * target.split(sizes)[r]).sum().backward()
            torch.testing.assert_close(got, wanted.split(sizes)[r], **tolerance)
            torch.testing.assert_close(part.grad, x.grad.split(sizes)[r], **tolerance)
        for name, buffer in plain.named_buffers():
            torch.testing.assert_close(dict(layer.named_buffers())[name], buffer, **tolerance)
        if affine:
            for mine, theirs in ((layer.weight, plain.weight), (layer.bias, plain.bias)):
                torch.testing.assert_close(hvd.allreduce(mine.grad, op=hvd.Sum), theirs.grad, **tolerance)
        layer.eval(), plain.eval()
        torch.testing.assert_close(layer(whole), plain(whole), **tolerance)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_as_one_process(size, dtype):
    shared_world(size).run(same_as_one_process, dtype, timeout=300)


def unusual() -> None:
    import horovod.torch as hvd

    r = hvd.rank()
    layer = hvd.SyncBatchNorm(2)
    with pytest.raises(ValueError, match="expected at least 2D input"):
        layer(torch.ones(3))
    x = torch.arange(8.0).view(4, 2)
    got = layer(x if r == 0 else x[:0])  # an empty batch on the other ranks
    if r == 0:
        torch.testing.assert_close(got, torch.nn.BatchNorm1d(2)(x))
    assert layer.running_mean.tolist() == pytest.approx([0.3, 0.4])
    half = layer(x.to(torch.bfloat16))
    assert half.dtype is torch.bfloat16
    alone = hvd.add_process_set([0])
    own = hvd.SyncBatchNorm(2, process_set=alone)
    torch.testing.assert_close(own(x * (r + 1)), torch.nn.BatchNorm1d(2)(x * (r + 1)))
    hvd.remove_process_set(alone)
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.BatchNorm1d(2)))
    plain = copy.deepcopy(model)
    model = hvd.SyncBatchNorm.convert_sync_batchnorm(model)
    assert isinstance(model[1][0], hvd.SyncBatchNorm)
    assert model.state_dict().keys() == plain.state_dict().keys()
    plain[0].load_state_dict(model[0].state_dict())
    torch.testing.assert_close(model(x), plain(x))


def test_unusual():
    shared_world(2).run(unusual, timeout=300)
