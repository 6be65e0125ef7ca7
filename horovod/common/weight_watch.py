# SPDX-License-Identifier: Apache-2.0
"""When the ranks' weights are compared, for front ends that are asked at every step; see weights.py for how.

    watch = WeightWatch("opt1.weights", ["w", "b"], process_set, advice)
    if not watch.over:
        watch.look([w, b])            # before every update

Programs make their ranks alike before the first step or, as Keras' callback does, right after it. So nothing
is compared before the weights have changed once.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import numpy as np

from horovod.common import weights
from horovod.common.process_sets import ProcessSet
from horovod.common.weights import Check, Fingerprint

_PATIENCE = (
    100  # steps without a change, e.g. with a learning rate of zero, after which nobody looks any more
)


class WeightWatch:
    """Follows some weights until the ranks have compared them once.

    Args:
        name: of the operation, the same on all members and used by nothing else.
        names: of the weights.
        process_set: who trains them.
        advice: what to do when they differ.

    Attributes:
        over: there is nothing more to look at.
    """

    def __init__(self, name: str, names: Sequence[str], process_set: ProcessSet, advice: str) -> None:
        self.over = not names or not weights.wanted(process_set)
        self._name, self._names, self._set, self._advice = name, names, process_set, advice
        self._first: Optional[List[float]] = None
        self._looks = 0
        self._check: Optional[Check] = None

    def look(self, values: Sequence[Any]) -> bool:
        """Takes the weights as they are before an update, as NumPy arrays; whether to ask again."""
        if self.over:
            return False
        if self._check is not None:
            self.over = self._check.finished(stacklevel=4)
            return not self.over
        flat = [np.asarray(value).reshape(-1) for value in values]
        sizes = [_magnitude(value) for value in flat]
        self._looks += 1
        if self._first is None:
            self._first = sizes
        elif sizes != self._first:
            prints = [
                Fingerprint(name, _bits(value), size) for name, value, size in zip(self._names, flat, sizes)
            ]
            self._check = weights.start(prints, self._set, self._name, self._advice)
            self.over = self._check is None
        elif self._looks > _PATIENCE:
            self.over = True
        return not self.over


def _bits(flat: Any) -> int:
    """The sum of all its bits, in words of the elements' size."""
    words = flat.view(f"i{min(flat.itemsize, 8)}")
    return int(words.sum(dtype=np.int64))


def _magnitude(flat: Any) -> float:
    """Of a few elements, spread over all."""
    last = flat.size - 1
    return (
        float(np.abs(flat[[0, last // 3, last * 2 // 3, last]].astype(np.float64)).sum())
        if flat.size
        else 0.0
    )
