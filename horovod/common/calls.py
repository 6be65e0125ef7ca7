# SPDX-License-Identifier: Apache-2.0
"""What one collective is to do, apart from its tensors.

A public function makes a `Call` of its arguments and hands it, with the tensors, to its front end. It is
hashable, so it can be a static parameter of a compiled program.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from horovod.common import names
from horovod.common._native import Request
from horovod.common.constants import Sum
from horovod.common.requests import request
from horovod.common.verbs import Verb


class Call(NamedTuple):
    """One collective over one tensor, or over several as an atomic group."""

    verb: Verb
    name: Optional[str] = None
    process_set: int = 0
    op: int = Sum
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = -1
    splits: Optional[Sequence[int]] = None
    rows: Optional[Tuple[int, ...]] = None  # of each output, where the caller knows what the ranks will give

    def wire_name(self) -> str:
        """The name on the wire of a call on one tensor. An unnamed one takes a number: ask once."""
        return names.wire_name(self.verb.name, self.name, self.process_set)

    def wire_names(self, count: int) -> List[str]:
        """The names on the wire of the members of a group."""
        return names.member_names(
            names.wire_name(self.verb.prefix(grouped=True), self.name, self.process_set), count
        )

    def request(
        self,
        name: str,
        dtype: int,
        shape: Tuple[int, ...],
        input_ptr: int,
        output_ptr: int,
        device: int = -1,
        stream: int = 0,
    ) -> Request:
        """The engine's request for one tensor; on a CUDA device, in the order of a stream."""
        verb, _, process_set, op, prescale, postscale, root, splits, _ = self
        return request(
            verb.kind, name, dtype, shape, input_ptr, output_ptr, op, root, splits, prescale, postscale,
            process_set, device, stream,
        )  # fmt: skip

    def for_gradient(self, verb: Optional[Verb] = None, **changes: Any) -> Call:
        """The collective of the backward pass: this one or another verb, under a name of its own.

        Args:
            verb: another verb; it gets nothing of this call but the name and the process set.
            changes: its arguments, or what differs from this call.
        """
        name = None if self.name is None else f"{self.name}.grad"
        if verb is None:
            return self._replace(name=name, **changes)
        return Call(verb, name, self.process_set, **changes)
