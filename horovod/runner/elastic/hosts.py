# SPDX-License-Identifier: Apache-2.0
"""The hosts of an elastic job: in a stable order, those that failed left alone for a while. Pure.

hosts = KnownHosts(cooldown_range=(10, 300))
hosts.listed({"node1": 4, "node2": 4})       what discovery says now
hosts.blacklist("node2", now=100.0)
hosts.usable(now=100.0)                      [("node1", 4)]
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Tuple

COOLDOWN_LOWER_LIMIT_SECS, COOLDOWN_UPPER_LIMIT_SECS = 1, 3600
# A host that never answered may still be booting: it is tried again, whatever the range for failed ones is.
UNREACHABLE_RANGE = (2, 300)
FOREVER = float("inf")
Range = Tuple[int, int]


class HostUpdateResult(enum.IntFlag):
    """How a list of hosts differs from the one before."""

    no_update = 0
    removed = 1
    added = 2
    mixed = 3


def check_cooldown_range(cooldown: Optional[Range]) -> None:
    """Raises ValueError for a range that cannot be."""
    if cooldown is None:
        return
    low, high = cooldown
    if low < COOLDOWN_LOWER_LIMIT_SECS:
        raise ValueError(
            f"Provided cooldown lower limit: {low} cannot be lower than default cooldown lower limit: "
            f"{COOLDOWN_LOWER_LIMIT_SECS}"
        )
    if high > COOLDOWN_UPPER_LIMIT_SECS:
        raise ValueError(
            f"Provided cooldown upper limit: {high} cannot be higher than default cooldown upper limit: "
            f"{COOLDOWN_UPPER_LIMIT_SECS}"
        )
    if low > high:
        raise ValueError(f"the cooldown range {low} {high} ends before it begins")


@dataclass
class _Failed:
    count: int = 0
    until: float = 0.0


class KnownHosts:
    """Hosts in the order in which they were first seen.

    Args:
        cooldown_range: the shortest and the longest time for which a failed host is left alone, in seconds;
            None: for ever, unless discovery no longer lists it and then does again (a replaced machine).
        chance: a random number from 0 to 1.
    """

    def __init__(
        self, cooldown_range: Optional[Range] = None, chance: Callable[[], float] = random.random
    ) -> None:
        check_cooldown_range(cooldown_range)
        self._cooldown = cooldown_range
        self._chance = chance
        self._slots: Dict[str, int] = {}  # in the order first seen
        self._failed: Dict[str, _Failed] = {}

    def listed(self, found: Mapping[str, int]) -> HostUpdateResult:
        """Takes what discovery has found."""
        found = {host: slots for host, slots in found.items() if slots > 0}
        change = HostUpdateResult.no_update
        for host in [host for host in self._slots if host not in found]:
            del self._slots[host]
            self._failed.pop(host, None)
            change |= HostUpdateResult.removed
        for host, slots in found.items():
            before = self._slots.get(host, 0)
            self._slots[host] = slots
            if slots != before:
                change |= HostUpdateResult.added if slots > before else HostUpdateResult.removed
        return change

    def blacklist(self, host: str, now: float) -> float:
        """A host has failed; returns until when it is left alone. Again within that time: no effect."""
        return self._leave_alone(host, now, self._cooldown)

    def unreachable(self, host: str, now: float) -> float:
        """A host could not be reached at all; returns when it may be tried again."""
        return self._leave_alone(host, now, UNREACHABLE_RANGE)

    def is_blacklisted(self, host: str, now: float) -> bool:
        """Whether a host is left alone at that time."""
        failed = self._failed.get(host)
        return failed is not None and now < failed.until

    def usable(self, now: float) -> List[Tuple[str, int]]:
        """Hosts with their slots, in order."""
        return [(host, slots) for host, slots in self._slots.items() if not self.is_blacklisted(host, now)]

    def capacity(self, now: float) -> int:
        """How many ranks they may run."""
        return sum(slots for _, slots in self.usable(now))

    def wake_at(self, now: float) -> Optional[float]:
        """When the next host is forgiven."""
        times = [one.until for one in self._failed.values() if now < one.until < FOREVER]
        return min(times) if times else None

    def slots(self) -> Dict[str, int]:
        """All that are listed, those left alone too, with their slots."""
        return dict(self._slots)

    def names(self) -> List[str]:
        """All that are listed, those left alone too."""
        return list(self._slots)

    def _leave_alone(self, host: str, now: float, cooldown: Optional[Range]) -> float:
        failed = self._failed.setdefault(host, _Failed())
        if now >= failed.until:
            failed.count += 1
            failed.until = FOREVER
            if cooldown is not None:
                low, high = cooldown
                delay = low * 2.0 ** min(failed.count, 30) + self._chance() * low
                failed.until = now + min(max(delay, low), high)
        return failed.until
