# SPDX-License-Identifier: Apache-2.0
"""How an optimizer's gradients are reduced."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from horovod.common.calls import Call
from horovod.common.process_sets import ProcessSet, process_set_id
from horovod.common.verbs import ALLREDUCE


class Rule(NamedTuple):
    """What the user asked for."""

    op: int
    prescale: float
    postscale: float
    compression: Any
    sparse_as_dense: bool
    process_set: ProcessSet

    def call(self, name: Optional[str] = None) -> Call:
        """The collective that reduces one gradient."""
        number = process_set_id(self.process_set)
        return Call(ALLREDUCE, name, number, self.op, self.prescale, self.postscale)
