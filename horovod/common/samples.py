# SPDX-License-Identifier: Apache-2.0
"""How many samples this rank has trained on, if its script says so: for those who watch the job."""

from __future__ import annotations

from typing import Optional

_counted: Optional[int] = None


def count_samples(count: int) -> None:
    """Says that this rank has trained on so many more samples; those who watch the job see how fast it is.

    Args:
        count: e.g. the size of a batch.
    """
    global _counted
    _counted = (_counted or 0) + int(count)


def counted() -> Optional[int]:
    """All samples of this process; None where the script does not count them."""
    return _counted
