# SPDX-License-Identifier: Apache-2.0
"""Errors of Spark jobs in words that help."""

from __future__ import annotations

from typing import Optional


def explained(error: Optional[Exception]) -> Exception:
    """What to raise when Spark's job failed: what to do about the mistakes that are made most often."""
    text = str(error)
    if "No module named 'horovod'" in text:
        return RuntimeError(
            "The Python that runs Spark's tasks has no horovod. Install it there, or set PYSPARK_PYTHON (or "
            "spark.pyspark.python) to one that has it before the session is started"
        )
    if "PYTHON_VERSION_MISMATCH" in text:
        return RuntimeError(
            "Spark's tasks run another version of Python than this process. Set PYSPARK_PYTHON (or "
            "spark.pyspark.python) to the same before the session is started"
        )
    return Exception("Spark job has failed, see the error above.")
