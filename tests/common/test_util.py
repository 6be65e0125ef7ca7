# SPDX-License-Identifier: Apache-2.0
"""The helpers of horovod.common.util."""

from __future__ import annotations

import os

import pytest

from horovod.common import util


def test_env_sets_and_restores():
    os.environ["HVD_A"] = "before"
    os.environ.pop("HVD_B", None)
    with util.env(HVD_A="inside", HVD_B="new", HVD_C=None):
        assert os.environ["HVD_A"] == "inside" and os.environ["HVD_B"] == "new"
        assert "HVD_C" not in os.environ
    assert os.environ.pop("HVD_A") == "before" and "HVD_B" not in os.environ


@pytest.mark.parametrize(
    "items, n, want",
    [
        ([1, 2, 3, 4, 5], 2, [[1, 2, 3], [4, 5]]),
        ([1, 2], 3, [[1], [2], []]),
        ([], 2, [[], []]),
        (list(range(10)), 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
    ],
)
def test_split_list(items, n, want):
    assert util.split_list(items, n) == want


@pytest.mark.parametrize("n, want", [(0, False), (1, True), (2, True), (3, False), (64, True), (65, False)])
def test_num_rank_is_power_2(n, want):
    assert util.num_rank_is_power_2(n) is want


def test_is_iterable():
    assert util.is_iterable([1]) and util.is_iterable("x") and not util.is_iterable(3)


@pytest.mark.parametrize(
    "version, want", [("1.2.3", True), ("1.10.0", True), ("1.2.2", False), ("2.0", True)]
)
def test_versions_compare_as_numbers(version, want):
    assert util.is_version_greater_equal_than(version, "1.2.3") is want


@pytest.mark.parametrize("version, target", [(1, "1.2.3"), ("1", "1.2"), ("1", None)])
def test_versions_of_other_forms_are_refused(version, target):
    with pytest.raises(ValueError):
        util.is_version_greater_equal_than(version, target)


def test_cache_remembers_by_arguments():
    calls = []

    @util._cache
    def square(x, offset=0):
        calls.append(x)
        return x * x + offset

    assert [square(2), square(2), square(2, offset=1), square(3)] == [4, 4, 5, 9]
    assert calls == [2, 2, 3]


def test_extension_available_prints_only_when_asked(capsys):
    assert util.extension_available("no_such_framework") is False
    assert capsys.readouterr().out == ""
    util.extension_available("no_such_framework", verbose=True)
    out = capsys.readouterr().out
    assert "Checking whether extension no_such_framework was built." in out
    assert "Extension no_such_framework was NOT built." in out


def test_check_extension(tmp_path):
    import horovod

    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", horovod.__file__, "mpi_lib_v2")
    with pytest.raises(ImportError, match=r"Extension x.y has not been built: .*mpi_lib.* not found"):
        util.check_extension("x.y", "HOROVOD_WITH_X", str(tmp_path / "__init__.py"), "mpi_lib")


def test_backwards_compatible_average():
    resolve = util.get_average_backwards_compatibility_fun(None)
    assert resolve(None, None) == 0 and resolve(1, None) == 1


def test_capabilities():
    assert util.gloo_built() is True
    assert util.nccl_built() == 0
    assert util.ddl_built() is False and util.ccl_built() is False
    assert isinstance(util.mpi_built(), bool)
