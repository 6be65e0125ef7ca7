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

from horovod.common.process_sets import ProcessSet
from horovod.common.weights import Fingerprint, WeightCheck, of_array, wanted

# Steps without a change, e.g. with a learning rate of zero, after which nobody looks any more.
_PATIENCE = 100


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
        self.over = not names or not wanted(process_set)
        self._names, self._set = names, process_set
        self._check = WeightCheck("after the first step", advice, name)
        self._first: Optional[List[Fingerprint]] = None
        self._looks = 0
        self._started = False

    def look(self, values: Sequence[Any]) -> bool:
        """Takes the weights as they are before an update, as NumPy arrays; whether to ask again."""
        if self.over:
            return False
        if self._started:
            self._compare(())
            return not self.over
        prints = [of_array(name, value) for name, value in zip(self._names, values)]
        self._looks += 1
        if self._first is None:
            self._first = prints
        elif prints != self._first:
            self._started = True
            self._compare(prints)
        elif self._looks > _PATIENCE:
            self.over = True
        return not self.over

    def _compare(self, prints: Sequence[Fingerprint]) -> None:
        self._check.after_step(self._set, lambda: prints, stacklevel=5)
        self.over = self._check.over
