# SPDX-License-Identifier: Apache-2.0
"""Numbers as people read them."""

from __future__ import annotations


def percent(share: float) -> str:
    """0.412 -> "41 %"; 0.004 -> "0.4 %"."""
    return f"{share * 100:.1f} %" if 0 < share < 0.0095 else f"{share * 100:.0f} %"


def bytes_text(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return (
                f"{count:.0f} {unit}"
                if unit == "B" or count >= 100
                else f"{count:.1f} {unit}".replace(".0 ", " ")
            )
        count /= 1024
    raise AssertionError("the last unit has no limit")


def rate_text(per_second: float) -> str:
    """2.5e9 -> "2.50 GB/s"; 3e6 -> "3.0 MB/s"."""
    return f"{per_second / 1e9:.2f} GB/s" if per_second >= 1e8 else f"{per_second / 1e6:.1f} MB/s"


def time_text(microseconds: float) -> str:
    """1500 -> "1.5 ms"."""
    if microseconds < 1000:
        return f"{microseconds:.0f} us"
    if microseconds < 1e6:
        return f"{microseconds / 1e3:.1f} ms"
    return f"{microseconds / 1e6:.2f} s" if microseconds < 60e6 else f"{microseconds / 60e6:.1f} min"
