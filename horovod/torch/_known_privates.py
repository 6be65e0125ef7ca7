# SPDX-License-Identifier: Apache-2.0
"""Names of distributed optimizers that are not documented and that libraries touch all the same."""

from __future__ import annotations

from typing import Any, Dict, Set, Tuple

import torch

from horovod.common import engine, handles
from horovod.common.handles import Handle
from horovod.torch._core import Core
from horovod.torch._naming import find_duplicates, parameters_of
from horovod.torch._reducer import GradientReducer
from horovod.torch._slots import Slot


class KnownPrivates:
    """Thin names over what a distributed optimizer keeps."""

    _hvd: Core

    find_duplicates = staticmethod(find_duplicates)

    @property
    def _compression(self) -> Any:
        return self._hvd.settings.compression

    @property
    def _parameter_names(self) -> Dict[torch.Tensor, str]:
        return self._hvd.names

    @property
    def _requires_update(self) -> Set[torch.Tensor]:
        return {param for param in parameters_of(self._hvd.inner) if id(param) in self._hvd.hooked}

    @property
    def _handles(self) -> Dict[torch.Tensor, Any]:
        return {slot.param: slot for slot in self._hvd.reducer.slots if slot.grad is not None}

    @property
    def _allreduce_delay(self) -> Dict[torch.Tensor, int]:
        reducer = self._hvd.reducer
        return {slot.param: reducer.passes_per_step - slot.passes for slot in reducer.slots}

    @property
    def _should_synchronize(self) -> bool:
        """Whether `step` synchronizes; setting it to False is `skip_synchronize` without a `with`."""
        return not self._hvd.skip

    @_should_synchronize.setter
    def _should_synchronize(self, wanted: bool) -> None:
        self._hvd.skip = not wanted

    def _allreduce_grad_async(self, p: torch.Tensor) -> Tuple[int, Any]:
        """Sends a parameter's gradient now; a handle, and the compressor's context.

        `hvd.synchronize(handle)` gives the reduced gradient, which is also `p.grad`. Without it,
        `optimizer.synchronize` or `step` waits as always.
        """
        reducer = self._hvd.reducer
        slot = reducer.slot_of(p)
        reducer.absorb()
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        if reducer.active and slot.grad is None:
            reducer.launch(slot, p.grad)
        return handles.register(_GradientHandle(reducer, slot)), slot.context


class _GradientHandle(Handle):
    """A gradient under way; a group's or a sparse one is done when all it belongs to is."""

    __slots__ = ("_reducer", "_slot")

    def __init__(self, reducer: GradientReducer, slot: Slot) -> None:
        super().__init__(0, lambda submission: slot.param.grad, None)
        self._reducer = reducer
        self._slot = slot

    def done(self) -> bool:
        slot = self._slot
        if slot.grad is None:
            return True
        return bool(slot.bucket.handle) and engine.poll(slot.bucket.handle)

    def result(self) -> Any:
        self._reducer.wait()
        return super().result()
