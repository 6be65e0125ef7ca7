# SPDX-License-Identifier: Apache-2.0
"""State of frameworks that compute behind Python's back (JAX, MXNet): a commit does not wait for the step.

What is saved is a copy that the framework makes once the step is done, so it may turn out later that the step
had failed, and the copy with it. Hence there are two: the newest, and the one before, which is known to be
good. A commit waits for the copy of the commit before it, which is done by then, unless a commit costs more
than a step.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple

from horovod.common.elastic import ObjectState


class Copies(NamedTuple):
    """One commit: the framework's copies, and the plain values."""

    arrays: Any
    values: Dict[str, Any]


class LazyState(ObjectState):
    """Subclasses say how to copy, wait for, and bring back what the framework keeps."""

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object=bcast_object, get_rank=get_rank, **kwargs)
        self._newest = self._good = self._copies()

    def copy_arrays(self) -> Any:
        """Copies of the current values, without waiting for them."""
        raise NotImplementedError

    def wait_for(self, arrays: Any) -> None:
        """Waits until copies are made; raises RuntimeError if the step that makes them has failed."""
        raise NotImplementedError

    def bring_back(self, arrays: Any) -> None:
        """Makes copies the current values."""
        raise NotImplementedError

    def sync_arrays(self) -> None:
        """Gives every rank the current values of rank 0."""
        raise NotImplementedError

    def save(self) -> None:
        """Keeps the current values."""
        self.wait_for(self._newest.arrays)
        self._good = self._newest
        super().save()
        self._newest = self._copies()

    def restore(self) -> None:
        """Brings back the values last saved that were any good."""
        try:
            self.wait_for(self._newest.arrays)
            self._good = self._newest
        except RuntimeError:
            self._newest = self._good
        self._saved_state = dict(self._good.values)
        self.bring_back(self._good.arrays)
        super().restore()

    def sync(self) -> None:
        """Gives every rank the values of rank 0, and keeps them."""
        self.sync_arrays()
        super().sync()
        self._newest = self._good = self._copies()
        self.wait_for(self._good.arrays)

    def _copies(self) -> Copies:
        return Copies(self.copy_arrays(), dict(self._saved_state))
