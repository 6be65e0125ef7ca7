# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the batches of all ranks.

Forward needs one reduction of 2C + 1 numbers, backward one of 2C. Each rank computes its mean and variance in
the stable way; the ranks' sums and sums of squares are then added in float64, where the cancellation in
E[x^2] - E[x]^2 is harmless. Ranks may have batches of different sizes, also empty ones.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from horovod.common.basics import basics
from horovod.common.calls import Call
from horovod.common.constants import Sum
from horovod.common.members import place_in
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.verbs import ALLREDUCE
from horovod.torch._operation import run_one


class SyncBatchNorm(_BatchNorm):
    """Applies batch normalisation with the mean and variance of the whole, distributed batch.

    Args:
        num_features: C of an input (N, C, ...).
        eps, momentum, affine, track_running_stats: as in torch.nn.BatchNorm2d.
        process_set: the ranks whose batches form the whole.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        use_batch = self.training or self.running_mean is None
        if not use_batch or not self._is_shared():
            return super().forward(input)
        momentum = self._count_batch()
        apply: Any = _SyncBatchNorm.apply
        output, mean, var, count = apply(
            input, self.weight, self.bias, self.eps, process_set_id(self.process_set)
        )
        if self.training and self.running_mean is not None and self.running_var is not None:
            with torch.no_grad():
                unbiased = var * (count / (count - 1).clamp(min=1))
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)
        result: torch.Tensor = output
        return result

    def _is_shared(self) -> bool:
        return (
            basics.is_initialized()
            and bool(self.process_set.included())
            and place_in(process_set_id(self.process_set))[0] > 1
        )

    def _count_batch(self) -> float:
        """Counts the batch and returns the weight of its statistics in the running ones."""
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # cumulative average
                return 1.0 / float(self.num_batches_tracked)
        return 0.0 if self.momentum is None else self.momentum

    @classmethod
    def convert_sync_batchnorm(
        cls, module: torch.nn.Module, process_set: ProcessSet = global_process_set
    ) -> torch.nn.Module:
        """The module with every batch norm layer in it replaced; parameters and buffers are kept."""
        converted = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            converted = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_set,
            )  # fmt: skip
            converted.weight, converted.bias = module.weight, module.bias
            converted.running_mean, converted.running_var = module.running_mean, module.running_var
            converted.num_batches_tracked = module.num_batches_tracked
            converted.training = module.training
        for name, child in module.named_children():
            setattr(converted, name, cls.convert_sync_batchnorm(child, process_set))
        return converted


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A vector of C numbers, shaped to act on (N, C, ...)."""
    return values.to(like.dtype).view(1, -1, *[1] * (like.dim() - 2))


def _summed(values: torch.Tensor, name: str, set_id: int) -> torch.Tensor:
    total: torch.Tensor = run_one(Call(ALLREDUCE, name, set_id, Sum), values, in_place=True)
    return total


class _SyncBatchNorm(torch.autograd.Function):
    """Names hold the number of channels: layers run one after the other, so equal names never meet."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: Optional[torch.Tensor],
        bias: Optional[torch.Tensor],
        eps: float,
        set_id: int,
    ) -> Tuple[torch.Tensor, ...]:
        channels = input.shape[1]
        others = [d for d in range(input.dim()) if d != 1]
        local_count = input.numel() // channels if channels else 0
        sums = torch.zeros(2 * channels + 1, dtype=torch.float64, device=input.device)
        if local_count:
            precise = input if input.dtype in (torch.float32, torch.float64) else input.float()
            local_var, local_mean = torch.var_mean(precise, dim=others, correction=0)
            local_mean = local_mean.double()
            sums[:channels] = local_mean * local_count
            sums[channels:-1] = (local_var.double() + local_mean * local_mean) * local_count
            sums[-1] = local_count
        sums = _summed(sums, f"sync_batch_norm.stats.{channels}", set_id)
        count = sums[-1]
        mean = sums[:channels] / count
        var = (sums[channels:-1] / count - mean * mean).clamp_(min=0)
        invstd = (var + eps).rsqrt()
        normalized = (input - _per_channel(mean, input)) * _per_channel(invstd, input)
        output = normalized
        if weight is not None:
            output = output * _per_channel(weight, input)
        if bias is not None:
            output = output + _per_channel(bias, input)
        ctx.save_for_backward(normalized, weight, invstd, count)
        ctx.set_id = set_id
        ctx.mark_non_differentiable(mean, var, count)
        return output, mean, var, count

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Tuple[Any, ...]:
        normalized, weight, invstd, count = ctx.saved_tensors
        channels = grad.shape[1]
        others = [d for d in range(grad.dim()) if d != 1]
        precise = grad if grad.dtype in (torch.float32, torch.float64) else grad.float()
        grad_bias = precise.sum(dim=others)
        grad_weight = (precise * normalized).sum(dim=others)
        grad_input = None
        if ctx.needs_input_grad[0]:
            sums = torch.cat([grad_bias, grad_weight]).double()
            sums = _summed(sums, f"sync_batch_norm.grads.{channels}", ctx.set_id)
            sums /= count
            scale = invstd if weight is None else invstd * weight.double()
            grad_input = _per_channel(scale, grad) * (
                grad - _per_channel(sums[:channels], grad) - normalized * _per_channel(sums[channels:], grad)
            )
        # The optimizer reduces the layer's parameters like all others: these stay local.
        return (
            grad_input,
            None if weight is None or not ctx.needs_input_grad[1] else grad_weight.to(weight.dtype),
            None if not ctx.needs_input_grad[2] else grad_bias.to(grad.dtype),
            None,
            None,
        )


__all__ = ["SyncBatchNorm"]
