# SPDX-License-Identifier: Apache-2.0
"""The Spark session of this process, classic or Connect, and what we must know of it."""

from __future__ import annotations

from typing import Any, Optional


def active_session() -> Any:
    """The active session. Raises an exception if there is none."""
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()  # that of this thread, or the one all threads share
    except Exception:
        pass
    if _context_without_session():
        return SparkSession.builder.getOrCreate()
    raise Exception("Could not find an active SparkContext, are you running in a PySpark session?")


def _context_without_session() -> bool:
    """Whether there is a SparkContext that no session was made for."""
    try:
        from pyspark import SparkContext
    except ImportError:  # a package for Connect only
        return False
    return SparkContext._active_spark_context is not None


def context_of(session: Any) -> Optional[Any]:
    """The SparkContext of a classic session; None with Spark Connect."""
    return None if is_connect(session) else session.sparkContext


def is_connect(session: Any) -> bool:
    """Whether the session talks to Spark through Connect."""
    return ".connect." in type(session).__module__


def default_parallelism() -> int:
    """The number of tasks that Spark makes by default."""
    session = active_session()
    context = context_of(session)
    if context is not None:
        return int(context.defaultParallelism)
    from pyspark.sql.functions import spark_partition_id

    rows = session.range(1 << 20)  # Spark cuts it into as many parts
    return int(rows.select(spark_partition_id()).distinct().count())
