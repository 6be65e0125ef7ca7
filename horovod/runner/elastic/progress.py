# SPDX-License-Identifier: Apache-2.0
"""Whether a job gets anywhere, or only re-forms again and again. Pure."""

from __future__ import annotations

from typing import Optional

RESET_LIMIT_EXCEEDED_MESSAGE = (
    "Horovod was shutdown because number of resets during elastic job exceeded limit: {}"
)
# Failures in a row without a commit in between, until trying again is given up.
FRUITLESS = 10


class Progress:
    """Counts.

    Args:
        reset_limit: how often the world may re-form for more than newcomers; None: as long as there is a
            commit now and then.
    """

    def __init__(self, reset_limit: Optional[int]) -> None:
        self._limit = reset_limit
        self._resets = self._fruitless = self._commits = 0
        self._failed = False

    @property
    def used_up(self) -> bool:
        """Whether there were as many resets as there may be."""
        return self._limit is not None and self._resets >= self._limit

    def failed(self) -> None:
        """A worker was lost."""
        self._failed = True

    def re_forms(self) -> Optional[str]:
        """The world is about to re-form, not only to take in newcomers; why it must not, or None."""
        self._resets += 1
        if self._limit is not None and self._resets > self._limit:
            return RESET_LIMIT_EXCEEDED_MESSAGE.format(self._limit)
        return None

    def synchronised(self, commits: int) -> Optional[str]:
        """The world has got its state, after so many commits; why the job should end, or None."""
        self._fruitless = self._fruitless + 1 if self._failed and commits == self._commits else 0
        self._commits, self._failed = commits, False
        if self._fruitless >= FRUITLESS and self._limit is None:
            return (
                f"workers were lost {self._fruitless} times in a row without a commit in between: the job "
                "does not get anywhere. Commit more often, or say with --reset-limit how often to try"
            )
        return None
