# SPDX-License-Identifier: Apache-2.0
"""Those who wait for an answer: a value that nobody has set yet, a place that nobody has assigned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from horovod.rendezvous.errors import StoreError, StoreTimeout

Topic = Tuple[int, str]  # what they wait for: a generation (0: the job itself) and a key


@dataclass(eq=False)
class Wait:
    """One who waits.

    Attributes:
        look: the answer, None if there is none yet; may raise StoreError.
        answer: told the answer, or the error instead, exactly once.
        late: what to say when the time is up.
        owner: whoever asked; see `Waits.drop`.
    """

    topic: Topic
    look: Callable[[], Optional[bytes]]
    answer: Callable[[Optional[StoreError], bytes], None]
    late: Callable[[], str]
    owner: Any = None


class Waits:
    """All who wait. Used on one thread only.

    Args:
        later: runs a function after that many seconds.
    """

    def __init__(self, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._later = later
        self._waiting: Dict[Topic, List[Wait]] = {}

    def add(self, wait: Wait, seconds: float) -> bool:
        """Answers now, or else when there is an answer or the time is up; whether it has to wait."""
        if _settled(wait):
            return False
        self._waiting.setdefault(wait.topic, []).append(wait)
        self._later(seconds, lambda: self._expire(wait))
        return True

    def look_again(self, topic: Topic) -> None:
        """Something has changed for those who wait for this."""
        still = [one for one in self._waiting.pop(topic, []) if not _settled(one)]
        if still:
            self._waiting.setdefault(topic, []).extend(still)

    def look_again_in(self, generation: Optional[int] = None) -> None:
        """Something has changed for all who wait in a generation; None: for all."""
        for topic in [topic for topic in self._waiting if generation in (None, topic[0])]:
            self.look_again(topic)

    def drop(self, owner: Any, error: Optional[StoreError] = None) -> None:
        """Those of this owner need no answer any more, or get this error."""
        for topic in list(self._waiting):
            for wait in [one for one in self._waiting[topic] if one.owner is owner]:
                self._remove(wait)
                if error is not None:
                    wait.answer(error, b"")

    def _expire(self, wait: Wait) -> None:
        if self._remove(wait):
            wait.answer(StoreTimeout(wait.late()), b"")

    def _remove(self, wait: Wait) -> bool:
        there = self._waiting.get(wait.topic, [])
        if wait not in there:
            return False
        there.remove(wait)
        if not there:
            del self._waiting[wait.topic]
        return True


def _settled(wait: Wait) -> bool:
    try:
        found = wait.look()
    except StoreError as error:
        wait.answer(error, b"")
        return True
    if found is not None:
        wait.answer(None, found)
    return found is not None
