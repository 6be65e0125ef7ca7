# SPDX-License-Identifier: Apache-2.0
"""Names on the wire, and the arguments every framework shares."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from horovod.common import arguments, names
from horovod.common.constants import Adasum, Average, Max, Min, Product, Sum
from horovod.common.verbs import REDUCESCATTER


@pytest.fixture(autouse=True)
def fresh():
    names.reset()
    yield
    names.reset()


def test_given_names_get_their_verb_as_prefix():
    assert names.wire_name("allreduce", "weight") == "allreduce.weight"


def test_unnamed_operations_are_numbered_over_all_verbs_and_named_ones_are_not():
    assert names.wire_name("allreduce", None) == "allreduce.noname.1"
    assert names.wire_name("allgather", "x") == "allgather.x"
    assert names.wire_name("allgather", None) == "allgather.noname.2"


def test_every_process_set_has_its_own_numbers():
    assert names.wire_name("allreduce", None, 2) == "allreduce.noname.1"
    assert names.wire_name("allreduce", None) == "allreduce.noname.1"
    assert names.wire_name("allreduce", None, 2) == "allreduce.noname.2"
    names.forget_set(2)
    assert names.wire_name("allreduce", None, 2) == "allreduce.noname.1"


def test_group_members_count_from_one():
    assert names.member_names("g", 2) == ["g_1of2", "g_2of2"]
    assert names.member_names("g", 0) == []


@pytest.mark.parametrize("op", [Average, Sum, Adasum, Min, Max, Product])
def test_op_is_taken_as_given(op):
    assert arguments.resolve_op(op, None) == op
    assert arguments.resolve_op(np.int64(op), None) == op


@pytest.mark.parametrize("op", [-1, 6, 1.0, "Sum", np.float32(1), np.int8(17)])
def test_what_is_no_op_is_named(op):
    with pytest.raises(ValueError, match="is not a reduction"):
        arguments.resolve_op(op, None)


@pytest.mark.parametrize("average, op", [(True, Average), (False, Sum)])
def test_average_is_translated_with_a_warning(average, op):
    with pytest.warns(DeprecationWarning, match="has been replaced with `op`"):
        assert arguments.resolve_op(None, average) == op


def test_neither_means_average_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert arguments.resolve_op(None, None) == Average


def test_both_are_refused():
    with pytest.raises(ValueError, match="The op parameter supersedes average"):
        arguments.resolve_op(Sum, True)


@pytest.mark.parametrize("op", [6, -1, "sum", 1.0])
def test_unknown_reductions_are_refused(op):
    with pytest.raises(ValueError, match="is not a reduction"):
        arguments.resolve_op(op)


@pytest.mark.parametrize("op", [Adasum, Min, Max, Product])
def test_reducescatter_takes_average_and_sum_only(op):
    with pytest.raises(ValueError, match="only supports AVERAGE and SUM"):
        arguments.check_op(REDUCESCATTER, op)


@pytest.mark.parametrize(
    "splits, rows, text",
    [
        (None, 5, "splits not provided, but first dimension of tensor is not an even multiple"),
        ([1, 2, 3], 9, "Number of entries in splits does not equal number of workers."),
        ([3, 3], 5, "Sum of splits entries is greater than the first dimension of tensor."),
        ([-1, 2], 5, "must not be negative"),
    ],
)
def test_wrong_splits_are_refused(splits, rows, text):
    with pytest.raises(ValueError, match=text):
        arguments.check_splits(splits, rows, 2)


def test_right_splits_pass():
    assert arguments.check_splits(None, 4, 2) is None
    assert arguments.check_splits([], 4, 2) is None
    assert arguments.check_splits((1, 2), 4, 2) == [1, 2]
