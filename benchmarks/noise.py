# SPDX-License-Identifier: Apache-2.0
"""What else the machine did while something was measured.

    with Watch() as watch:
        ...
    watch.noise     # Noise(load=2.1, steal=0.01, others=0.35, apart=63)

Most of it is read from /proc. Processes that this one started count as ours, everything else as others.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

from benchmarks import core_distance

_CHILDREN_INCLUDED = slice(13, 17)  # utime, stime and those of children that have ended, in /proc/PID/stat


class Noise(NamedTuple):
    """Shares are of the time of all cores."""

    load: float  # average of the last minute, at the end
    steal: float  # taken by other machines on the same hardware
    others: float  # used by processes that are not ours
    apart: Optional[float] = None  # nanoseconds from core to core and back, before or after: the longer

    def __str__(self) -> str:
        text = f"load {self.load:.1f}, others {self.others:.0%}, stolen {self.steal:.0%}"
        return text if self.apart is None else f"{text}, from core to core and back {self.apart:.0f} ns"


class Watch:
    """Looks when entered and when left."""

    noise = Noise(0.0, 0.0, 0.0)

    def __enter__(self) -> Watch:
        self._apart = core_distance.nanoseconds()
        self._before = _look()
        return self

    def __exit__(self, *error: object) -> None:
        total, busy, steal, ours = (after - before for after, before in zip(_look(), self._before))
        load = os.getloadavg()[0]
        distances = [self._apart, core_distance.nanoseconds()]
        apart = max((one for one in distances if one is not None), default=None)
        if total > 0:
            self.noise = Noise(load, steal / total, max(0.0, busy - ours) / total, apart)
        else:
            self.noise = Noise(load, 0.0, 0.0, apart)


def _look() -> Tuple[float, float, float, float]:
    """Ticks so far: of all cores, of them busy, stolen, and our own."""
    first = (
        Path("/proc/stat").read_text().split("\n", 1)[0]
    )  # cpu user nice system idle iowait irq softirq steal
    ticks = [float(value) for value in first.split()[1:9]]
    user, nice, system, idle, iowait, irq, softirq, steal = ticks
    return sum(ticks), user + nice + system + irq + softirq, steal, _own_ticks()


def _own_ticks() -> float:
    """Ticks of this process and of all below it, those included that have ended."""
    parents: Dict[int, List[int]] = {}
    spent: Dict[int, float] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            # The name in brackets may hold spaces: "1234 (a b) S 1 ..."
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        fields = ["", "", *fields]
        parents.setdefault(int(fields[3]), []).append(int(entry))
        spent[int(entry)] = sum(float(value) for value in fields[_CHILDREN_INCLUDED])
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += spent.get(pid, 0.0)
        waiting += parents.get(pid, [])
    return total
