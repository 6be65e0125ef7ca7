# SPDX-License-Identifier: Apache-2.0
"""One Spark session for all tests that need no other."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed here")

from spark_here import session  # noqa: E402


@pytest.fixture(scope="session")
def spark():
    with session("local[2]") as started:
        yield started
