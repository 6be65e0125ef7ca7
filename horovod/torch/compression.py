# SPDX-License-Identifier: Apache-2.0
"""How tensors of PyTorch are cast for `compression=`; see horovod/common/compression.py for the protocol.

A compressor may be an instance and keep state. One that needs state *per parameter* (error feedback, for
instance) also has

    for_parameter(name, parameter) -> compressor

which `DistributedOptimizer` calls once a parameter; the compressor it returns serves that one alone.
"""

from __future__ import annotations

from typing import Any, Protocol, Tuple, runtime_checkable

import torch

from horovod.common.compression import CastCompressor, Compressor, NoneCompressor

__all__ = (
    "BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor", "SupportsCompression",
    "for_parameter",
)  # fmt: skip


@runtime_checkable
class SupportsCompression(Protocol):
    """Anything that may be passed as `compression=`."""

    def compress(self, tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]: ...

    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor: ...


class _Cast(CastCompressor):
    @staticmethod
    def is_wider(tensor: torch.Tensor, wire: torch.dtype) -> bool:
        return tensor.is_floating_point() and tensor.dtype is not wire

    @staticmethod
    def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return tensor.to(dtype)


class FP16Compressor(_Cast):
    """Sends floating-point tensors as float16."""

    wire = torch.float16


class BF16Compressor(_Cast):
    """Sends floating-point tensors as bfloat16: float32's range, fewer digits."""

    wire = torch.bfloat16


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def for_parameter(compression: Any, name: str, parameter: torch.Tensor) -> Any:
    """The compressor that serves one parameter: `compression` itself unless it makes one each."""
    make = getattr(compression, "for_parameter", None)
    return compression if make is None else make(name, parameter)
