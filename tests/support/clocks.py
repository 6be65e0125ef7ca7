# SPDX-License-Identifier: Apache-2.0
"""What a job's timelines say about its hosts' clocks while they are written."""

from __future__ import annotations

import re


def clock_offset_us(path) -> int:
    """By how much rank 0's clock is ahead of that of a timeline, which may be in the middle of a write."""
    with open(path) as file:
        return int(re.search(r'"clock_offset_us": *(-?\d+)', file.read())[1])
