# SPDX-License-Identifier: Apache-2.0
"""From counters that only grow, as a rank reports them, to speeds over the last seconds. Pure."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, List, Mapping, NamedTuple, Optional, Tuple

# Speeds are means over this time; the history has a point for each report.
_WINDOW_SECONDS, _HISTORY = 10.0, 60


class _Point(NamedTuple):
    time: float
    counters: Dict[str, float]


class Rates:
    """The speeds of one rank."""

    def __init__(self) -> None:
        self._points: Deque[_Point] = deque()
        self._history: Deque[Optional[float]] = deque(maxlen=_HISTORY)

    def add(self, snapshot: Mapping[str, Any], now: float) -> None:
        """Takes a report (observation.snapshot())."""
        counters = _counters(snapshot)
        last = self._points[-1].counters if self._points else {}
        if any(counters.get(name, 0.0) < value for name, value in last.items()):
            self._points.clear()  # the engine was started anew
        if self._points:
            self._history.append(_step_seconds(self._points[-1], _Point(now, counters)))
        self._points.append(_Point(now, counters))
        while len(self._points) > 2 and self._points[1].time <= now - _WINDOW_SECONDS:
            self._points.popleft()

    def per_second(self, name: str) -> Optional[float]:
        """How fast a counter grows: "steps", "samples", "bytes", "ops". None: not known (yet)."""
        ends = self._ends()
        if ends is None or not ends[1].counters.get(name):
            return None
        first, last = ends
        return (last.counters[name] - first.counters.get(name, 0.0)) / (last.time - first.time)

    def waiting_share(self) -> Optional[float]:
        """Which part of its time the rank waited for others, from 0 to 1."""
        ends = self._ends()
        if ends is None or "wait_us" not in ends[1].counters:
            return None
        first, last = ends
        waited = (last.counters["wait_us"] - first.counters.get("wait_us", 0.0)) / 1e6
        return min(max(waited / (last.time - first.time), 0.0), 1.0)

    def step_seconds(self) -> Optional[float]:
        """What a step took, on average."""
        ends = self._ends()
        return None if ends is None else _step_seconds(*ends)

    def history(self) -> List[Optional[float]]:
        """What steps took, a number for each report; None where no step ended."""
        return list(self._history)

    def _ends(self) -> Optional[Tuple[_Point, _Point]]:
        if len(self._points) < 2 or self._points[-1].time <= self._points[0].time:
            return None
        return self._points[0], self._points[-1]


def _counters(snapshot: Mapping[str, Any]) -> Dict[str, float]:
    metrics: Mapping[str, Any] = snapshot.get("metrics") or {}
    found = {
        "steps": snapshot.get("steps"),
        "samples": snapshot.get("samples"),
        "wait_us": metrics.get("wait_us"),
        "bytes": metrics.get("bytes"),
        "ops": metrics.get("tensors"),
    }
    return {name: float(value) for name, value in found.items() if isinstance(value, (int, float))}


def _step_seconds(first: _Point, last: _Point) -> Optional[float]:
    steps = last.counters.get("steps", 0.0) - first.counters.get("steps", 0.0)
    return (last.time - first.time) / steps if steps > 0 else None
