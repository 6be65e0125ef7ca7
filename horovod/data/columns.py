# SPDX-License-Identifier: Apache-2.0
"""From Arrow columns to NumPy arrays, without a copy where the memory allows it.

numbers, booleans, dates            one dimension
lists of equal length, nested too   one dimension more for each level
Spark ML vectors, dense and sparse  two dimensions
strings, lists of unequal length    arrays of objects
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Batch = Dict[str, Any]

# How Spark stores a vector: type 0 is sparse, 1 dense.
_VECTOR = {"type", "size", "indices", "values"}


def arrays_of(table: pa.Table) -> Batch:
    """The columns of a table by name."""
    return {name: array_of(table.column(name)) for name in table.column_names}


def array_of(column: pa.ChunkedArray) -> np.ndarray:
    """One column."""
    chunks = [_array(chunk) for chunk in column.chunks]
    return joined(chunks) if chunks else _array(pa.array([], column.type))


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays one after the other; if their rows differ in shape, the result is one of objects."""
    if len(parts) == 1:
        return parts[0]
    filled = [part for part in parts if len(part)] or [parts[0]]
    if len({(part.shape[1:], part.dtype == object) for part in filled}) > 1:
        filled = [_objects(list(part)) for part in filled]
    return np.concatenate(filled)


def _array(array: pa.Array) -> np.ndarray:
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(array)
    if pa.types.is_struct(kind) and {kind.field(i).name for i in range(kind.num_fields)} == _VECTOR:
        return _vectors(array)
    if pa.types.is_nested(kind):
        return _objects(array.to_pylist())
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _lists(array: Any) -> np.ndarray:
    """Lists as rows of a matrix if all have the same length and none is missing."""
    length = _common_length(array)
    if length is None:
        return _objects([_array(row.values) if row.is_valid else None for row in array])
    inner = _array(array.flatten())
    return inner.reshape(len(array), length, *inner.shape[1:])


def _common_length(array: Any) -> Optional[int]:
    if array.null_count:
        return None
    if pa.types.is_fixed_size_list(array.type):
        return int(array.type.list_size)
    if not len(array):
        return 0
    bounds = pc.min_max(pc.list_value_length(array)).as_py()
    return int(bounds["min"]) if bounds["min"] == bounds["max"] else None


def _vectors(array: pa.StructArray) -> np.ndarray:
    """Spark ML vectors as rows of a matrix of doubles."""
    values, kinds = array.field("values"), array.field("type")
    if not len(array):
        return np.empty((0, 0))
    if not kinds.null_count and pc.min(kinds).as_py() == 1:  # all dense
        return np.asarray(_lists(values))
    sizes = pc.if_else(pc.equal(kinds, 1), pc.list_value_length(values), array.field("size"))
    sizes = np.asarray(sizes.to_numpy(zero_copy_only=False))
    if sizes.min() != sizes.max():
        smallest, largest = int(sizes.min()), int(sizes.max())
        raise ValueError(f"vectors of different sizes in one column: {smallest} and {largest}")
    matrix = np.zeros((len(array), int(sizes[0])))
    lengths = np.asarray(pc.list_value_length(values).to_numpy(zero_copy_only=False))
    rows = np.repeat(np.arange(len(array)), lengths)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    dense = np.repeat(np.asarray(kinds) == 1, lengths)
    places = np.where(dense, within, 0)
    places[~dense] = np.asarray(array.field("indices").flatten())
    matrix[rows, places] = np.asarray(values.flatten())
    return matrix


def _objects(items: List[Any]) -> np.ndarray:
    """A one-dimensional array of the items; NumPy would look into them."""
    made = np.empty(len(items), dtype=object)
    for i, item in enumerate(items):
        made[i] = item
    return made
