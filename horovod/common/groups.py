# SPDX-License-Identifier: Apache-2.0
"""The `groups` argument of optimizers and tapes: which gradients are reduced together, atomically."""

from __future__ import annotations

from typing import Any, Callable, Hashable, Optional, Sequence, Tuple

from horovod.common.util import split_list

Positions = Tuple[Tuple[int, ...], ...]


def positions(
    groups: Any, keys: Sequence[Hashable], key_of: Callable[[Any], Hashable]
) -> Optional[Positions]:
    """Which gradients form groups, by their places in the list; None when each is reduced by itself.

        positions(2, ["a", "b", "c"], str)              -> ((0, 1), (2,))
        positions([["c", "a"]], ["a", "b", "c"], str)   -> ((2, 0), (1,))

    Args:
        groups: None, a number of groups, or lists of variables; those not listed are groups of their own.
        keys: what identifies the variable of each gradient.
        key_of: the key of a listed variable. One that has no gradient in this step is left out.
    """
    if groups is None:
        return None
    if isinstance(groups, int):
        return tuple(tuple(part) for part in split_list(range(len(keys)), groups) if part)
    place = {key: i for i, key in enumerate(keys)}
    listed = [[place[key_of(v)] for v in group if key_of(v) in place] for group in groups]
    found = {i for group in listed for i in group}
    return tuple(
        tuple(group) for group in [*listed, *([i] for i in range(len(keys)) if i not in found)] if group
    )
