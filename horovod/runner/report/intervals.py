# SPDX-License-Identifier: Apache-2.0
"""Sets of times as sorted, disjoint intervals. Pure."""

from __future__ import annotations

from typing import Iterable, List, Tuple

Interval = Tuple[float, float]


def union(intervals: Iterable[Interval]) -> List[Interval]:
    """The times in any of the intervals."""
    merged: List[Interval] = []
    for begin, end in sorted(one for one in intervals if one[1] > one[0]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def minus(whole: Iterable[Interval], gone: Iterable[Interval]) -> List[Interval]:
    """The times of one set that are not in the other. Both are unions."""
    rest: List[Interval] = []
    holes = list(gone)
    at = 0
    for begin, end in whole:
        while at < len(holes) and holes[at][1] <= begin:
            at += 1
        here = at
        while here < len(holes) and holes[here][0] < end:
            if holes[here][0] > begin:
                rest.append((begin, holes[here][0]))
            begin = max(begin, holes[here][1])
            here += 1
        if begin < end:
            rest.append((begin, end))
    return rest


def total(intervals: Iterable[Interval]) -> float:
    """Their length together, if they are disjoint."""
    return sum(end - begin for begin, end in intervals)
