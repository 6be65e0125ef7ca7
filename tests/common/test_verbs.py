# SPDX-License-Identifier: Apache-2.0
"""The table of verbs, and what is made from it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.common import constants, gradients
from horovod.common.verbs import VERBS, Result, scattered_rows

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_row_is_complete(verb):
    assert constants.KIND_NAME[verb.kind] == verb.name
    assert verb.gradient in VERBS and verb.name in gradients._GRADIENTS
    names = [argument.name for argument in verb.arguments]
    assert {"name", "process_set"} <= set(names)
    assert bool(verb.reductions) == ("op" in names)
    assert not verb.in_place or verb.result is Result.SAME


@pytest.mark.parametrize("script", ["generate_verbs.py"])
def test_the_public_functions_are_those_of_the_table(script):
    done = subprocess.run(
        [sys.executable, os.path.join(ROOT, "scripts", script), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@given(st.integers(0, 1000), st.integers(1, 50))
def test_the_shares_of_a_scatter_are_even_and_complete(rows, members):
    shares = [scattered_rows(rows, members, position) for position in range(members)]
    assert sum(shares) == rows and max(shares) - min(shares) <= 1 and shares == sorted(shares, reverse=True)
