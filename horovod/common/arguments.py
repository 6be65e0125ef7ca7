# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that mean the same in every framework."""

from __future__ import annotations

import warnings
from typing import List, Optional, Sequence

from horovod.common.constants import Average, Product, Sum


def resolve_op(op: Optional[int], average: Optional[bool] = None) -> int:
    """The reduction from the `op` argument and its predecessor `average`; Average when neither is given."""
    if average is not None:
        if op is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        warnings.warn(
            "Parameter `average` has been replaced with `op` and will be removed in v1.0",
            DeprecationWarning,
            stacklevel=3,
        )
        return Average if average else Sum
    if op is None:
        return Average
    if not isinstance(op, int) or not 0 <= op <= Product:
        raise ValueError(f"op={op!r} is not a reduction; use hvd.Average, Sum, Adasum, Min, Max or Product.")
    return op


def check_scatter_op(op: int) -> int:
    """Reducescatter's reduction: Average or Sum."""
    if op not in (Average, Sum):
        raise ValueError("Reducescatter currently only supports AVERAGE and SUM.")
    return op


def check_splits(splits: Optional[Sequence[int]], rows: int, members: int) -> Optional[List[int]]:
    """Alltoall's splits as a list of one entry a member, or None for an even split.

    Args:
        splits: rows for each member, or None, or an empty sequence.
        rows: first dimension of the tensor.
        members: size of the process set.
    """
    if splits is None or len(splits) == 0:
        if rows % members != 0:
            raise ValueError(
                "splits not provided, but first dimension of tensor is not an even multiple of the number "
                "of workers."
            )
        return None
    if len(splits) != members:
        raise ValueError("Number of entries in splits does not equal number of workers.")
    checked = [int(s) for s in splits]
    if any(s < 0 for s in checked):
        raise ValueError(f"splits must not be negative: {checked}")
    if sum(checked) > rows:
        raise ValueError("Sum of splits entries is greater than the first dimension of tensor.")
    return checked
