# SPDX-License-Identifier: Apache-2.0
"""Gradient compression: what travels between the ranks may be smaller than what is computed.

The protocol is two methods, as static methods of a class or as methods of an instance:

    compress(tensor) -> (wire, context)       `wire` is what is reduced
    decompress(wire, context) -> tensor       brings the reduced `wire` back

An instance may keep state. One that needs state *per parameter* (error feedback, for instance) also has

    for_parameter(name, parameter) -> compressor

which `DistributedOptimizer` calls once a parameter; the compressor it returns serves that one alone.
`wire` must have the same shape and dtype on every rank.
"""

from __future__ import annotations

from typing import Any, Optional, Protocol, Tuple, runtime_checkable

import torch


@runtime_checkable
class SupportsCompression(Protocol):
    """Anything that may be passed as `compression=`."""

    def compress(self, tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]: ...

    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor: ...


class Compressor:
    """Base class of the compressors here; deriving from it is optional."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        """Returns what to send and whatever `decompress` needs to undo it."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Returns the tensor as it was before `compress`, but for the reduction."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends gradients as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, None]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: None) -> torch.Tensor:
        return tensor


def _narrow(tensor: torch.Tensor, dtype: torch.dtype) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
    if tensor.is_floating_point() and tensor.dtype is not dtype:
        return tensor.to(dtype), tensor.dtype
    return tensor, None


def _widen(tensor: torch.Tensor, dtype: Optional[torch.dtype]) -> torch.Tensor:
    return tensor if dtype is None else tensor.to(dtype)


class FP16Compressor(Compressor):
    """Sends floating point tensors as float16; the sums are formed in float32."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
        return _narrow(tensor, torch.float16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Optional[torch.dtype]) -> torch.Tensor:
        return _widen(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends floating point tensors as bfloat16: float32's range, so gradients neither over- nor underflow."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Optional[torch.dtype]]:
        return _narrow(tensor, torch.bfloat16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Optional[torch.dtype]) -> torch.Tensor:
        return _widen(tensor, ctx)


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def for_parameter(compression: Any, name: str, parameter: torch.Tensor) -> Any:
    """The compressor that serves one parameter: `compression` itself unless it makes one each."""
    make = getattr(compression, "for_parameter", None)
    return compression if make is None else make(name, parameter)
