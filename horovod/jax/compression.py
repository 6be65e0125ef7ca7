# SPDX-License-Identifier: Apache-2.0
"""Gradient compression for `allreduce(compression=...)` and the optimizer: fewer bytes on the wire."""

from __future__ import annotations

from typing import Any, Tuple

import jax.numpy as jnp


class Compressor:
    """Interface: anything with these two static methods is accepted as `compression=`."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        """The tensor to send, and what `decompress` needs to undo it."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The received tensor in its original form."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        """The tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor itself."""
        return tensor


def _cast(tensor: Any, dtype: Any) -> Tuple[Any, Any]:
    if not jnp.issubdtype(tensor.dtype, jnp.floating) or tensor.dtype.itemsize <= 2:
        return tensor, tensor.dtype
    return tensor.astype(dtype), tensor.dtype


class FP16Compressor(Compressor):
    """Sends floating tensors as float16."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        """The tensor as float16, and its type."""
        return _cast(tensor, jnp.float16)

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tensor.astype(ctx)


class BF16Compressor(FP16Compressor):
    """Sends floating tensors as bfloat16, which keeps the range of float32."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        """The tensor as bfloat16, and its type."""
        return _cast(tensor, jnp.bfloat16)


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
