# SPDX-License-Identifier: Apache-2.0
"""Gradient compression: what travels between the ranks may be smaller than what is computed.

The protocol is two methods, as static methods of a class or as methods of an instance:

    compress(tensor) -> (wire, context)       `wire` is what is reduced
    decompress(wire, context) -> tensor       brings the reduced `wire` back

`wire` must have the same shape and type on every rank. A front end says in its `compression.py` how its
tensors are cast; the rest is here.
"""

from __future__ import annotations

from typing import Any, ClassVar, Tuple


class Compressor:
    """Interface: anything with these two methods is accepted as `compression=`; deriving is optional."""

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


class CastCompressor(Compressor):
    """Sends wider floating-point tensors as `wire`; the sums of half types are formed in float32.

    A front end fills in `is_wider` and `cast`, and derives a class a type, e.g. with `wire = torch.float16`.
    """

    wire: ClassVar[Any]

    @staticmethod
    def is_wider(tensor: Any, wire: Any) -> bool:
        """Whether casting the tensor to `wire` saves anything."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """The tensor in another type."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> Tuple[Any, Any]:
        """The tensor as `wire`, and its type; None for one that is sent as it is."""
        if not cls.is_wider(tensor, cls.wire):
            return tensor, None
        return cls.cast(tensor, cls.wire), tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """The tensor in its original type."""
        return tensor if ctx is None else cls.cast(tensor, ctx)
