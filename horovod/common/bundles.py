# SPDX-License-Identifier: Apache-2.0
"""Which gradients share a node of a graph, where a node costs more than to reduce a small gradient.

Gradients that share one are still sent under their own names, so ranks need not agree on who shares with
whom; they only leave together, once the last of them is there. Large ones go alone, as soon as they can.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

SMALL = 64 << 10  # bytes of a gradient that may share
FULL = 1 << 20  # bytes of all that share a node: the first of many need not wait for the last


def bundles(sizes: Sequence[Optional[int]]) -> List[List[int]]:
    """The places of those that share a node; each is in one list. A size that is not known shares with none.

    bundles([1024, 9999999, 512, None])   -> [[1], [3], [0, 2]]
    """
    found: List[List[int]] = [[i] for i, size in enumerate(sizes) if size is None or size > SMALL]
    room = -1  # in the last list, if that is a shared one
    for i, size in enumerate(sizes):
        if size is None or size > SMALL:
            continue
        if size > room:
            found.append([])
            room = FULL
        found[-1].append(i)
        room -= size
    return found
