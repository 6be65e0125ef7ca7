# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that mean the same in every framework."""

from __future__ import annotations

import contextlib
import operator
import warnings
from typing import Any, Callable, Iterable, List, Optional, Sequence

from horovod.common.constants import REDUCE_OP_NAME, Average, Product, Sum
from horovod.common.verbs import Verb


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
    return op if isinstance(op, int) and 0 <= op <= Product else _whole_number(op)


def _whole_number(op: Any) -> int:
    """A reduction that is given as another type's whole number, e.g. np.int64(1)."""
    with contextlib.suppress(TypeError):
        number = operator.index(op)
        if 0 <= number <= Product:
            return number
    raise ValueError(f"op={op!r} is not a reduction; use hvd.Average, Sum, Adasum, Min, Max or Product.")


def check_op(verb: Verb, op: int) -> int:
    """The reduction of a verb that has fewer than allreduce."""
    if op not in verb.reductions:
        known = " and ".join(REDUCE_OP_NAME[one].upper() for one in verb.reductions)
        raise ValueError(f"{verb.title} currently only supports {known}.")
    return op


def check_rows(verb: Verb, dimensions: int) -> None:
    """Refuses tensors without a first dimension for verbs that work along it."""
    if dimensions == 0 and verb.by_rows:
        raise ValueError(f"{verb.title} does not support scalar inputs")


def as_splits(splits: Any) -> Optional[List[int]]:
    """Alltoall's splits as a list, from whatever NumPy takes for an array of whole numbers."""
    if splits is None:
        return None
    import numpy as np

    array = np.asarray(splits)
    if array.ndim != 1:
        raise ValueError("alltoall expects a 1D splits tensor")
    if array.size and array.dtype.kind not in "iu":
        raise ValueError("alltoall expects splits to contain 32-bit integer elements.")
    return [int(rows) for rows in array]


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


def check_predivide(factor: float, op: int) -> None:
    """Part of an average's division can be done before the sum; other reductions divide by nothing."""
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")


def check_groups(
    groups: Any, num_groups: int = 0, *, member: str, is_member: Optional[Callable[[Any], bool]] = None
) -> Any:
    """The `groups` argument of optimizers: None, a number of groups, or lists of what is reduced together.

    Args:
        num_groups: the deprecated predecessor of a number.
        member: what such lists hold, e.g. torch.Tensor.
        is_member: tells whether something is one; None leaves the lists unchecked.
    """
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed in v0.23.0.",
            DeprecationWarning,
            stacklevel=3,
        )
        groups = num_groups if groups is None else groups
    if groups is None:
        return None
    if not isinstance(groups, (list, tuple)):
        if isinstance(groups, bool) or not isinstance(groups, int) or groups <= 0:
            raise ValueError(f"groups should be a non-negative integer or a list of list of {member}.")
        return groups
    if is_member is not None:
        if any(is_member(group) or not isinstance(group, Iterable) for group in groups):
            raise ValueError(f"groups must consist of {member}.")
        members = [one for group in groups for one in group]
        if not all(is_member(one) for one in members):
            raise ValueError(f"groups must consist of {member}.")
        if len({id(one) for one in members}) != len(members):
            raise ValueError("A parameter can only appear once in groups.")
    return groups


def check_passes(passes: int) -> int:
    """`backward_passes_per_step`: at least one."""
    if passes <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    return passes
