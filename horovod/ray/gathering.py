# SPDX-License-Identifier: Apache-2.0
"""The results of one call on every rank; or, when ranks fail, the failure that caused the others."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, cast

from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt

# After a failure: how long the other ranks may take to end by themselves, and how long a failure that others
# must have caused (a lost peer) waits for that one to be known: Ray needs seconds to notice a lost node.
_GRACE_SECONDS, _CAUSE_SECONDS = 1.0, 20.0


class Failed(Exception):
    """What happened on each rank: its exception, or None while it is fine. Raised with its cause.

    Attributes:
        culprit: the rank that failed first.
        cause: what it raised.
        broken: whether the world is of no use any more: ranks wait for each other in vain, or have lost one.
    """

    def __init__(self, errors: Sequence[Optional[BaseException]], pending: Sequence[Any]) -> None:
        self._pending = list(pending)
        self.culprit = find_culprit(errors)
        cause = errors[self.culprit]
        assert cause is not None
        self.cause: BaseException = cause
        self.broken = any(pending) or any(is_loss(one) or is_consequence(one) for one in errors)
        super().__init__(f"rank {self.culprit}: {self.cause}")

    def settle(self) -> None:
        """Waits a moment for ranks that were still busy; what they raise is no news, and not to be logged."""
        import ray

        if self._pending:
            done, _ = ray.wait(self._pending, num_returns=len(self._pending), timeout=_GRACE_SECONDS)
            for call in done:
                _error_of(call)


def is_consequence(error: Optional[BaseException]) -> bool:
    """Whether another rank caused it."""
    return isinstance(error, (HorovodInternalError, HostsUpdatedInterrupt))


def is_loss(error: Optional[BaseException]) -> bool:
    """Whether the rank's process is gone."""
    from ray.exceptions import RayActorError

    return isinstance(error, RayActorError)


def find_culprit(errors: Sequence[Optional[BaseException]]) -> int:
    """The rank to blame: the first whose failure is its own, else the first that failed."""
    failed = [rank for rank, error in enumerate(errors) if error is not None]
    return next((rank for rank in failed if not is_consequence(errors[rank])), failed[0])


def gather(
    calls: Sequence[Any], on_loss: Callable[[int, BaseException], None] = lambda *args: None
) -> List[Any]:
    """Results in rank order; waits for all unless one fails.

    Args:
        calls: Ray's references, in rank order.
        on_loss: called with each rank whose process is gone, at once: others may wait for it.

    Raises:
        Failed: a rank has failed; the others had a moment to end.
    """
    import ray
    from ray.exceptions import RayError

    try:
        return list(ray.get(list(calls)))
    except RayError:
        pass
    errors: List[Optional[BaseException]] = [None] * len(calls)
    waited, step = 0.0, 0.25
    while True:
        done, pending = ray.wait(list(calls), num_returns=len(calls), timeout=0 if not waited else step)
        for rank, call in enumerate(calls):
            if call in done and errors[rank] is None:
                errors[rank] = _error_of(call)
                if is_loss(errors[rank]):
                    on_loss(rank, errors[rank])  # type: ignore[arg-type]
        waited += step
        known = any(error is not None and not is_consequence(error) for error in errors)
        if not pending or waited > (_GRACE_SECONDS if known else _CAUSE_SECONDS):
            raise Failed(errors, pending)


def _error_of(call: Any) -> Optional[BaseException]:
    import ray
    from ray.exceptions import RayError

    try:
        ray.get(call)
        return None
    except RayError as error:
        return cast(BaseException, error)
