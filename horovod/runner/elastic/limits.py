# SPDX-License-Identifier: Apache-2.0
"""What the user of an elastic job allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Limits:
    """How many ranks, and how long to wait for what, in seconds.

    Attributes:
        num_proc: slots to wait for before the job starts.
        min_np, max_np: fewest and most ranks; None: as many as there are slots.
        reset_limit: how often the world may re-form for more than newcomers; None: as long as there is
            progress (progress.py).
        fixed_hosts: no other hosts will ever come.
    """

    num_proc: int
    min_np: int
    max_np: Optional[int] = None
    elastic_timeout: float = 600.0
    start_timeout: float = 30.0
    network_timeout: float = 30.0
    reset_limit: Optional[int] = None
    fixed_hosts: bool = False
