# SPDX-License-Identifier: Apache-2.0
"""Gradient compression for `DistributedTrainer`: fewer bytes on the wire."""

from __future__ import annotations

from typing import Any, Tuple

import numpy as np


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


class FP16Compressor(Compressor):
    """Sends floating tensors as float16."""

    @staticmethod
    def compress(tensor: Any) -> Tuple[Any, Any]:
        """The tensor as float16, and its type."""
        if np.dtype(tensor.dtype).kind != "f":
            return tensor, tensor.dtype
        return tensor.astype("float16", copy=False), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tensor.astype(ctx, copy=False)


class Compression:
    """The compressors that come with Horovod."""

    none = NoneCompressor
    fp16 = FP16Compressor
