# SPDX-License-Identifier: Apache-2.0
"""Sizes and times as people read them."""

from __future__ import annotations


def size_text(size: int) -> str:
    """4 B, 64 KiB, 128 MiB"""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(us: float) -> str:
    """3.1 us, 4.52 ms, 1.20 s"""
    if us < 1000:
        return f"{us:.1f} us"
    return f"{us / 1000:.2f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def ranks_text(ranks: int) -> str:
    """1 rank, 2 ranks"""
    return "1 rank" if ranks == 1 else f"{ranks} ranks"
