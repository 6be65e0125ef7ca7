# SPDX-License-Identifier: Apache-2.0
"""How tensors of TensorFlow are cast for `compression=`; the protocol is in horovod/common/compression.py."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ("BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor")


class _Cast(CastCompressor):
    @staticmethod
    def is_wider(tensor: Any, wire: Any) -> bool:
        return bool(tensor.dtype.is_floating and tensor.dtype != wire)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tf.cast(tensor, dtype)


class FP16Compressor(_Cast):
    """Sends floating-point tensors as float16."""

    wire = tf.float16


class BF16Compressor(_Cast):
    """Sends floating-point tensors as bfloat16: float32's range, fewer digits."""

    wire = tf.bfloat16


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
