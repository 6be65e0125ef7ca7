# SPDX-License-Identifier: Apache-2.0
"""Errors of Spark jobs in words that help."""

from __future__ import annotations

from typing import Optional

# What Spark's error contains -> what was wrong; the mistakes that are made most often.
_MISTAKES = {
    "No module named 'horovod'": "The Python that runs Spark's tasks has no horovod. Install it there, or "
    "set PYSPARK_PYTHON (or spark.pyspark.python) to one that has it before the session is started",
    "PYTHON_VERSION_MISMATCH": "Spark's tasks run another version of Python than this process. Set "
    "PYSPARK_PYTHON (or spark.pyspark.python) to the same before the session is started",
    "Cannot run program": "Spark's tasks cannot start their Python. Set PYSPARK_PYTHON (or "
    "spark.pyspark.python) to the path that it has on every executor before the session is started",
}


def explained(error: Optional[Exception]) -> Exception:
    """What to raise when Spark's job failed."""
    text = str(error)
    for sign, meaning in _MISTAKES.items():
        if sign in text:
            return RuntimeError(meaning)
    return Exception("Spark job has failed, see the error above.")
