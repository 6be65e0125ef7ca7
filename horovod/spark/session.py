# SPDX-License-Identifier: Apache-2.0
"""The Spark session of this process, classic or Connect, and what we must know of it."""

from __future__ import annotations

from typing import Any, Optional


def active_session() -> Any:
    """The active session. Raises an exception if there is none."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        raise Exception("Could not find an active SparkContext, are you running in a PySpark session?")
    return session


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
    return int(session.range(1, numPartitions=None).rdd.getNumPartitions())
