# SPDX-License-Identifier: Apache-2.0
"""How tensors of MXNet are cast for `compression=`; see horovod/common/compression.py for the protocol."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod.common.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ("Compression", "Compressor", "FP16Compressor", "NoneCompressor")


class _Cast(CastCompressor):
    @staticmethod
    def is_wider(tensor: Any, wire: Any) -> bool:
        return bool(np.dtype(tensor.dtype).kind == "f" and np.dtype(tensor.dtype).itemsize > 2)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tensor.astype(dtype, copy=False)


class FP16Compressor(_Cast):
    """Sends floating-point tensors as float16."""

    wire = "float16"


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
