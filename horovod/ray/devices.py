# SPDX-License-Identifier: Apache-2.0
"""Which GPUs the ranks of a node see, and in which order. Pure."""

from __future__ import annotations

from typing import List, Sequence

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(by_local_rank: Sequence[Sequence[str]]) -> str:
    """The GPUs of all ranks of a node, so that index `hvd.local_rank()` is one of the rank's own.

    Each rank's first GPU comes first, then the second ones: [["0", "1"], ["2", "3"]] gives "0,2,1,3". Ranks
    of a node see each other's devices, since they copy between them directly.
    """
    longest = max((len(ids) for ids in by_local_rank), default=0)
    found: List[str] = [ids[turn] for turn in range(longest) for ids in by_local_rank if turn < len(ids)]
    return ",".join(found)


def own_at(slot: int, own: Sequence[str], count: int) -> str:
    """All GPUs of a node, with the first own one at the index that is the local rank while the node is full.

    own_at(1, ["0"], 2) gives "1,0". Without room for that (more slots than GPUs) the own ones alone.
    """
    others = [str(number) for number in range(count) if str(number) not in own]
    before = others[:slot]
    return ",".join([*before, *own, *others[slot:]] if len(before) == slot else own)
