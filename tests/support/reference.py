# SPDX-License-Identifier: Apache-2.0
"""Plain, readable versions of the collectives: a list with every rank's array in, every rank's result out.

They are the oracle of the grids and property tests, for all front ends that can speak NumPy.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

Arrays = List[Any]

AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT = range(6)


def is_half(dtype: Any) -> bool:
    """float16 and bfloat16 are accumulated in float32."""
    return np.dtype(dtype).name in ("float16", "bfloat16")


def is_integer(dtype: Any) -> bool:
    """Integers and bool are scaled in double precision and truncated toward zero."""
    return np.dtype(dtype).kind in "iub"


def scaled(array: Any, factor: float) -> Any:
    """array * factor, in the array's type."""
    if factor == 1.0:
        return array
    if is_integer(array.dtype):
        return np.trunc(array.astype(np.float64) * factor).astype(array.dtype)
    if is_half(array.dtype):
        return (array.astype(np.float32) * np.float32(factor)).astype(array.dtype)
    return (array * array.dtype.type(factor)).astype(array.dtype)


def adasum(a: Any, b: Any) -> Any:
    """The pairwise rule: each vector loses half of its projection on the other."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    dot, xx, yy = float((x * y).sum()), float((x * x).sum()), float((y * y).sum())
    keep_x = 1.0 if xx == 0 else 1.0 - dot / (2 * xx)
    keep_y = 1.0 if yy == 0 else 1.0 - dot / (2 * yy)
    return (x * keep_x + y * keep_y).astype(a.dtype)


def adasum_tree(arrays: Arrays) -> Any:
    """Neighbours first, then pairs of pairs: the binary tree of distance doubling."""
    while len(arrays) > 1:
        pairs = [adasum(a, b) for a, b in zip(arrays[::2], arrays[1::2])]
        arrays = pairs + ([arrays[-1]] if len(arrays) % 2 else [])
    return arrays[0]


def reduced(arrays: Arrays, op: int = SUM, prescale: float = 1.0, postscale: float = 1.0) -> Any:
    """The element-wise reduction that every rank gets."""
    dtype = arrays[0].dtype
    inputs = [scaled(a, prescale) for a in arrays]
    if op == ADASUM:
        return scaled(adasum_tree(inputs), postscale)
    if op == AVERAGE:
        postscale = postscale / len(arrays)
    wide = [a.astype(np.float32) for a in inputs] if is_half(dtype) else inputs
    total = wide[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for a in wide[1:]:
            if op in (AVERAGE, SUM):
                total = np.add(total, a, dtype=total.dtype) if dtype != np.bool_ else total | a
            elif op == MIN:
                total = np.minimum(total, a)
            elif op == MAX:
                total = np.maximum(total, a)
            else:
                total = np.multiply(total, a, dtype=total.dtype) if dtype != np.bool_ else total & a
        if is_half(dtype):
            return (total * np.float32(postscale)).astype(dtype)
        return scaled(total, postscale)


def allreduce(arrays: Arrays, op: int = SUM, prescale: float = 1.0, postscale: float = 1.0) -> Arrays:
    """Everybody gets the reduction."""
    result = reduced(arrays, op, prescale, postscale)
    return [result for _ in arrays]


def allgather(arrays: Arrays) -> Arrays:
    """Everybody gets all rows, in rank order."""
    everything = np.concatenate(arrays)
    return [everything for _ in arrays]


def broadcast(arrays: Arrays, root: int) -> Arrays:
    """Everybody gets the root's array."""
    return [arrays[root] for _ in arrays]


def alltoall(arrays: Arrays, splits: Optional[Sequence[Sequence[int]]] = None) -> List[Tuple[Any, List[int]]]:
    """Rank j gets from rank i the j-th slice of i's rows."""
    n = len(arrays)
    rows = [list(s) for s in splits] if splits is not None else [[len(a) // n] * n for a in arrays]
    slices = [np.split(a[: sum(r)], np.cumsum(r)[:-1]) for a, r in zip(arrays, rows)]
    return [
        (np.concatenate([slices[i][j] for i in range(n)]), [rows[i][j] for i in range(n)]) for j in range(n)
    ]


def block(rows: int, n: int, i: int) -> slice:
    """The rows of rank i when `rows` are shared out to n ranks: one more for the first rows % n."""
    short, longer = divmod(rows, n)
    start = i * short + min(i, longer)
    return slice(start, start + short + (1 if i < longer else 0))


def reducescatter(arrays: Arrays, op: int = AVERAGE, prescale: float = 1.0, postscale: float = 1.0) -> Arrays:
    """Everybody gets its block of the reduction."""
    total = reduced(arrays, op, prescale, postscale)
    return [total[block(len(total), len(arrays), i)] for i in range(len(arrays))]


# Relative error that different orders of summation may give.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}


def check_close(got: Any, want: Any, what: str = "") -> str:
    """ "" if equal up to rounding, else what differs, for tests that collect failures on many ranks."""
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{what}: got {got.dtype}{list(got.shape)}, want {want.dtype}{list(want.shape)}"
    tolerance = TOLERANCE.get(want.dtype.name)
    if tolerance is None:
        same = np.array_equal(got, want)
    else:
        a, b = got.astype(np.float64), want.astype(np.float64)
        same = np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    return "" if same else f"{what}: got {got.ravel()[:6]}, want {want.ravel()[:6]}"
