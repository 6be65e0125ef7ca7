# SPDX-License-Identifier: Apache-2.0
"""What --check keeps for --report."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launching import horovodrun

from horovod.runner.measured import Measured, read

POINTS = [(4, 1e-5), (65536, 1e-4), (16 << 20, 5e-3)]
MEASURED = Measured(2, ["node1"], POINTS)


def test_there_and_back(tmp_path):
    path = tmp_path / "check.json"
    MEASURED.write(str(path))
    assert read(str(path)) == MEASURED and list(tmp_path.iterdir()) == [path]


@given(st.integers(1, 1 << 30), st.integers(1, 1 << 30))
def test_more_bytes_take_no_less(a, b):
    assert (MEASURED.seconds(a) <= MEASURED.seconds(b) * (1 + 1e-9)) or a > b


def test_what_was_measured_is_met():
    assert [MEASURED.seconds(nbytes) for nbytes, _ in POINTS] == pytest.approx(
        [seconds for _, seconds in POINTS]
    )
    assert MEASURED.seconds(1) == 1e-5 and MEASURED.seconds(32 << 20) == pytest.approx(1e-2)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ranks": 2, "hosts": [], "allreduce": [{"bytes": 1}]}'])
def test_other_files(tmp_path, text):
    (tmp_path / "f").write_text(text)
    with pytest.raises(ValueError, match="is not a file of"):
        read(str(tmp_path / "f"))


@pytest.mark.parametrize("rows", ["", '{"bytes": 0, "seconds": 1}'])
def test_nothing_measured(tmp_path, rows):
    (tmp_path / "f").write_text(f'{{"ranks": 2, "hosts": [], "allreduce": [{rows}]}}')
    with pytest.raises(ValueError, match="has no measurements"):
        read(str(tmp_path / "f"))


def test_the_self_test_writes_it(tmp_path):
    done = horovodrun("--check", "-np", "2", "--check-output", "check.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    measured = read(str(tmp_path / "check.json"))
    assert (measured.ranks, measured.hosts) == (2, ["localhost"])
    assert [nbytes for nbytes, _ in measured.points] == [4, 64 << 10, 1 << 20, 16 << 20]
