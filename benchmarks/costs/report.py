# SPDX-License-Identifier: Apache-2.0
"""One loop's costs as tables.

Shares are turned into microseconds of rank 0's main thread: its processor time, which a busy machine does
not stretch, where nothing is waited for; what it waits for by spinning is in it too.
"""

from __future__ import annotations

import statistics
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from benchmarks.costs.instructions import Counted
from benchmarks.costs.loops import Loop
from benchmarks.costs.perf import Cost
from benchmarks.noise import Noise

ROWS = 24  # of a table
LEAST = 0.004  # share of what is shown
# Everything of Python is below everything else of Python: its sums say little.
SHOWN_INCLUSIVE = ("hvd", "snprintf", "malloc", "free", "operator", "pthread", "ffi_call", "PyCFuncPtr_call")


class Functions(NamedTuple):
    """What perf found."""

    own: Sequence[Cost]
    inclusive: Sequence[Cost]
    in_the_engine: Sequence[Cost]


def text(
    name: str, loop: Loop, found: Mapping[str, Any], functions: Optional[Functions], noise: Noise
) -> str:
    """The whole report."""
    unit = _unit(loop)
    each = statistics.median(found["plain"]["processor"]) * 1e6 / loop.units
    parts = [f"== {name}: {loop.about}", *_layers(found, loop, unit), f"   {noise}"]
    parts += ["", f"-- lines of Python, main thread, us a {unit} ({found['line_samples']} samples)"]
    parts += [f"   {'itself':>8} {'in all':>8}  line"]
    shown = [entry for entry in found["lines"] if entry[1] >= LEAST][:ROWS]
    parts += [f"   {alone * each:8.2f} {below * each:8.2f}  {place}" for place, alone, below in shown]
    if functions is None:
        return "\n".join([*parts, "", f"-- functions: not measured: {found['perf']}"])
    main = _main_thread(functions.own)
    own = _of(functions.own, main)
    whole = sum(cost.share for cost in own) or 1.0
    scale = each / whole
    parts += ["", "-- threads, share of rank 0's processor time"]
    parts += [f"   {share:8.1%}  {thread}" for thread, share in _sum(functions.own, "thread").items()]
    parts += ["", f"-- libraries, main thread, us a {unit}", *_table(_sum(own, "library"), scale)]
    parts += ["", f"-- functions, main thread, us a {unit}", *_functions(own, scale)]
    engine = [cost for cost in _of(functions.inclusive, main) if cost.library.startswith("libhorovod")]
    parts += ["", "-- functions of the engine with all they call", *_functions(engine, scale)]
    inside = functions.in_the_engine
    parts += ["", "-- inside the engine, by interface function", *_table(_sum(inside, "thread"), scale)]
    parts += ["", "-- inside the engine, by library", *_table(_sum(inside, "library"), scale)]
    merged = _sum(inside, "function")
    libraries = {cost.function: cost.library for cost in inside}
    parts += ["", "-- inside the engine, by function"]
    parts += _functions([Cost(share, "", libraries[name], name) for name, share in merged.items()], scale)
    return "\n".join(parts)


def counted_text(loop: Loop, counted: Counted) -> str:
    """Instructions by library and function; with all they call, only what is ours or the C library's."""
    parts = [f"-- instructions, {counted.total / loop.units:.0f} a {_unit(loop)}, by library"]
    parts += [
        f"   {n / loop.units:8.0f}  {library}" for library, n in list(counted.by_library().items())[:10]
    ]
    below = [c for c in counted.inclusive if c.function.startswith(SHOWN_INCLUSIVE)]
    for title, counts in (("by function", counted.own), ("with all they call", below)):
        parts += ["", f"-- instructions, {title}"]
        for c in counts[:30]:
            parts.append(f"   {c.instructions / loop.units:8.0f}  {c.library:<24} {c.function[:100]}")
    return "\n".join(parts)


def _unit(loop: Loop) -> str:
    return "call" if loop.units == 1 else f"tensor ({loop.units} in a call)"


def _layers(found: Mapping[str, Any], loop: Loop, unit: str) -> List[str]:
    """The whole call, the engine by itself, and a call that does nothing."""

    def line(label: str, times: Mapping[str, Sequence[float]], units: int) -> str:
        wall, processor = ([t * 1e6 / units for t in times[key]] for key in ("wall", "processor"))
        return (
            f"   {statistics.median(processor):8.2f} us of the processor, {statistics.median(wall):8.2f} us "
            f"on the clock ({min(wall):.2f} .. {max(wall):.2f})  {label}"
        )

    lines = [line(f"a {unit}, {found['calls']} calls", found["plain"], loop.units)]
    if found.get("native"):
        lines.append(line("the same by the C header alone", found["native"], loop.units))
    elif loop.native:
        lines.append(f"   by the C header alone: not measured: {found['problem'] or found['native_error']}")
    if found.get("foreign_call"):
        lines.append(line("a ctypes call with four arguments that does nothing", found["foreign_call"], 1))
    return lines


def _main_thread(costs: Sequence[Cost]) -> str:
    """The engine's own threads are called hvd-...; the main thread has the program's name."""
    threads = _sum([cost for cost in costs if not cost.thread.startswith("hvd")], "thread")
    return next(iter(threads), "")


def _of(costs: Sequence[Cost], thread: str) -> List[Cost]:
    """One thread's costs."""
    return [cost for cost in costs if cost.thread == thread]


def _sum(costs: Sequence[Cost], key: str) -> Dict[str, float]:
    """Shares by one column, the largest first."""
    sums: Dict[str, float] = {}
    for cost in costs:
        sums[getattr(cost, key)] = sums.get(getattr(cost, key), 0.0) + cost.share
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _table(sums: Mapping[str, float], scale: float) -> List[str]:
    return [f"   {share * scale:8.2f}  {name}" for name, share in sums.items() if share >= LEAST][:ROWS]


def _functions(costs: Sequence[Cost], scale: float) -> List[str]:
    ordered = sorted(costs, key=lambda cost: -cost.share)[:ROWS]
    return [
        f"   {cost.share * scale:8.2f}  {cost.library:<24} {cost.function[:100]}"
        for cost in ordered if cost.share >= LEAST / 2
    ]  # fmt: skip
