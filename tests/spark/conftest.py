# SPDX-License-Identifier: Apache-2.0
"""One Spark session for all tests that need no other, and data for the estimators."""

from __future__ import annotations

import os
import shutil

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed here")
if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
    pytest.skip("Spark needs Java, which is not installed here", allow_module_level=True)

from estimator_data import COLUMNS, rows  # noqa: E402
from spark_here import session  # noqa: E402
from spark_scripts import lines  # noqa: E402


@pytest.fixture(scope="session")
def spark():
    with session("local[2]") as started:
        yield started


@pytest.fixture(scope="session")
def df(spark):
    return spark.createDataFrame(rows(), COLUMNS).coalesce(1).cache()


@pytest.fixture
def store(tmp_path):
    from horovod.spark.common.store import Store

    return Store.create(str(tmp_path / "store"))


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """The folder in which the snippets of docs/spark.md and the examples were run, and what they printed."""
    folder = tmp_path_factory.mktemp("pages")
    found, done = lines("pages_script.py", folder, KERAS_BACKEND="jax")  # the quickest to import

    def text_of(name):
        assert not found[name]["error"], (
            found[name]["text"][-2000:] + found[name]["error"] + done.stderr[-2000:]
        )
        return found[name]["text"]

    return folder, text_of
