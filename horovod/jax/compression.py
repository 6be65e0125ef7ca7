# SPDX-License-Identifier: Apache-2.0
"""How tensors of JAX are cast for `compression=`; see horovod/common/compression.py for the protocol."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from horovod.common.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ("BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor")


class _Cast(CastCompressor):
    @staticmethod
    def is_wider(tensor: Any, wire: Any) -> bool:
        return bool(jnp.issubdtype(tensor.dtype, jnp.floating) and tensor.dtype.itemsize > 2)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tensor.astype(dtype)


class FP16Compressor(_Cast):
    """Sends floating-point tensors as float16."""

    wire = jnp.float16


class BF16Compressor(_Cast):
    """Sends floating-point tensors as bfloat16: float32's range, fewer digits."""

    wire = jnp.bfloat16


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
