# SPDX-License-Identifier: Apache-2.0
"""Errors of Spark jobs in words that help."""

from __future__ import annotations


def explained(error: Exception) -> Exception:
    """An error of Spark's job, with what to do about the mistakes that are made most often."""
    text = str(error)
    if "No module named 'horovod'" in text or "No module named 'cloudpickle'" in text:
        return RuntimeError(
            "The Python that runs Spark's tasks has no horovod. Install it there, or set PYSPARK_PYTHON (or "
            f"spark.pyspark.python) to one that has it before the session is started. Spark says: {text}"
        )
    if "PYTHON_VERSION_MISMATCH" in text:
        return RuntimeError(
            "Spark's tasks run another version of Python than this process. Set PYSPARK_PYTHON (or "
            f"spark.pyspark.python) to the same before the session is started. Spark says: {text}"
        )
    return error
