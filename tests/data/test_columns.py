# SPDX-License-Identifier: Apache-2.0
"""Arrow columns of every kind become the arrays one expects."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest

from horovod.data.columns import array_of, joined

VECTOR = pa.struct(
    [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
)


def dense(*values):
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def sparse(size, **values):
    indices = [int(name[1:]) for name in values]
    return {"type": 0, "size": size, "indices": indices, "values": list(values.values())}


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2, 3], pa.int32(), np.array([1, 2, 3], np.int32)),
        ([1.5, 2.5], pa.float64(), np.array([1.5, 2.5])),
        ([True, False], pa.bool_(), np.array([True, False])),
        ([1, None], pa.int64(), np.array([1.0, np.nan])),
        ([decimal.Decimal("1.25")], pa.decimal128(5, 2), np.array([1.25])),
        ([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32()), np.array([[1, 2], [3, 4], [5, 6]], np.float32)),
        ([[1, 2], [3, 4]], pa.large_list(pa.int8()), np.array([[1, 2], [3, 4]], np.int8)),
        ([[1, 2], [3, 4]], pa.list_(pa.int8(), 2), np.array([[1, 2], [3, 4]], np.int8)),
        ([[[1, 2]], [[3, 4]]], pa.list_(pa.list_(pa.int64())), np.array([[[1, 2]], [[3, 4]]])),
        ([dense(1, 2), dense(3, 4)], VECTOR, np.array([[1.0, 2], [3, 4]])),
        ([sparse(3, _2=5.0), sparse(3)], VECTOR, np.array([[0, 0, 5.0], [0, 0, 0]])),
        ([dense(1, 2, 3), sparse(3, _0=4.0, _2=6.0)], VECTOR, np.array([[1.0, 2, 3], [4, 0, 6]])),
    ],
)
@pytest.mark.parametrize("chunks", [1, 2])
def test_numbers_and_rows(values, kind, expected, chunks):
    column = pa.chunked_array([values] * chunks, kind)
    found = array_of(column)
    np.testing.assert_array_equal(found, np.concatenate([expected] * chunks))
    assert found.dtype == expected.dtype


def test_parts_of_a_row_group():
    """Slices of Arrow arrays share memory with the whole; offsets must be minded."""
    lists = pa.array([[i, i + 1] for i in range(10)], pa.list_(pa.int32()))
    vectors = pa.array([sparse(4, _1=float(i)) if i % 2 else dense(i, 0, 0, 0) for i in range(10)], VECTOR)
    np.testing.assert_array_equal(array_of(pa.chunked_array([lists[3:6]])), [[3, 4], [4, 5], [5, 6]])
    expected = [[0, 3, 0, 0], [4, 0, 0, 0], [0, 5, 0, 0]]
    np.testing.assert_array_equal(array_of(pa.chunked_array([vectors[3:6]])), expected)


def test_objects():
    words = array_of(pa.chunked_array([["a", None, "c"]]))
    assert words.tolist() == ["a", None, "c"]
    categories = array_of(pa.chunked_array([pa.array(["x", "y", "x"]).dictionary_encode()]))
    assert categories.tolist() == ["x", "y", "x"]
    ragged = array_of(pa.chunked_array([[[1], [2, 3], None]]))
    assert ragged.shape == (3,) and ragged[1].tolist() == [2, 3] and ragged[2] is None
    structs = array_of(pa.chunked_array([[{"a": 1}, {"a": 2}]]))
    assert structs.tolist() == [{"a": 1}, {"a": 2}]


def test_lengths_that_differ_between_row_groups():
    both = joined([np.ones((2, 3)), np.zeros((1, 2))])
    assert both.shape == (3,) and [len(row) for row in both] == [3, 3, 2]
    assert joined([np.ones((0, 0)), np.ones((2, 3))]).shape == (2, 3)


def test_vectors_of_different_sizes():
    with pytest.raises(ValueError, match="different sizes in one column: 2 and 3"):
        array_of(pa.chunked_array([[sparse(3), dense(1, 2)]], VECTOR))


def test_no_copy_of_numbers():
    for column in (pa.array(np.arange(6.0)), pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float64()))):
        values = column if pa.types.is_floating(column.type) else column.values
        assert array_of(pa.chunked_array([column])).ctypes.data == values.buffers()[1].address
