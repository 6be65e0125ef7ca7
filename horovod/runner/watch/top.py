# SPDX-License-Identifier: Apache-2.0
"""The job in a terminal: `horovodrun --top`. On a terminal a table that is drawn anew each second, with the
last lines that the ranks printed; elsewhere a line of plain text every ten seconds, between the ranks' own.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple

from horovod.runner.watch.stacks import doing

_LINE_SECONDS = 10.0
_ENTER, _LEAVE, _HOME = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H"
_BOLD, _RED, _YELLOW, _GREEN, _DIM, _PLAIN = (f"\x1b[{code}m" for code in ("1", "31", "33", "32", "2", "0"))
_COLOURS = {"waiting": _YELLOW, "computing": _GREEN, "communicating": _GREEN}
# What stays on the terminal when the job has ended.
_LAST_LINES = 200


def give_way(stdout: Optional[Any], stderr: Optional[Any]) -> Tuple[Any, Any]:
    """Where a job prints while the table has the terminal: nowhere in place of that; files stay."""
    if not draws(sys.stderr):
        return stdout, stderr
    nowhere = open(os.devnull, "w", encoding="utf-8")  # for as long as this process lives
    return (nowhere if draws(stdout or sys.stdout) else stdout), nowhere


class Source(Protocol):
    """Where the table gets what it shows (watcher.Watcher)."""

    def views(self) -> Iterator[Dict[str, Any]]:
        """The view now, and again each second until the job has ended."""


class Top:
    """Shows the job until close()."""

    def __init__(self, source: Source, stream: Optional[Any] = None) -> None:
        self._stream = stream or sys.stderr
        show = self._draw if draws(self._stream) else self._tell
        self._thread = threading.Thread(target=show, args=(source,), name="horovod-top", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits until the end of the job was shown."""
        self._thread.join(2.0)

    def _draw(self, source: Source) -> None:
        lines: List[str] = []
        events: List[Mapping[str, Any]] = []
        self._write(_ENTER)
        try:
            for view in source.views():
                lines = (lines + [_line(one) for one in view["lines"]])[-_LAST_LINES:]
                events = (events + view["events"])[-_LAST_LINES:]
                self._write(_HOME + "\r\n".join(screen(view, events, lines, shutil.get_terminal_size())))
        finally:
            self._write(_LEAVE + "".join(f"{line}\n" for line in lines))

    def _tell(self, source: Source) -> None:
        told = 0.0
        for view in source.views():
            for event in view["events"]:
                if event["bad"]:
                    self._write(f"horovodrun: {event['text']}\n")
            if time.monotonic() - told >= _LINE_SECONDS and view["totals"]["steps_s"] is not None:
                told = time.monotonic()
                self._write(f"horovodrun: {summary(view)}\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            pass  # a terminal that is gone ends no job


def draws(stream: Any) -> bool:
    """Whether a table can be drawn there: on a terminal with a cursor."""
    try:
        return bool(stream.isatty()) and os.environ.get("TERM", "dumb") not in ("", "dumb")
    except (AttributeError, ValueError):
        return False


def screen(
    view: Mapping[str, Any], events: Sequence[Mapping[str, Any]], lines: Sequence[str], size: os.terminal_size
) -> List[str]:
    """All lines of the screen, each cut to its width and clearing the rest of its line."""
    width, height = max(size.columns, 20), max(size.lines, 8)
    rows = [(_BOLD, f"{view['title']}"), (_PLAIN, summary(view)), (_PLAIN, "")]
    rows.append((_DIM, _columns("rank", "host", "step", "steps/s", "waits", "memory", "does")))
    room = max(height - len(rows) - 8, 1)
    # Those that need attention first, when there is no room for all.
    shown = view["ranks"]
    if len(shown) > room:
        shown = sorted(shown, key=lambda row: not row["bad"])[: room - 1]
    for row in shown:
        colour = _RED if row["bad"] else _COLOURS.get(row["state"], _PLAIN)
        rows.append((colour, _row(row)))
        if row["bad"] and row.get("where") and row["state"] != "failed":
            rows.append((_RED, f"      at {row['where']}"))
    if len(shown) < len(view["ranks"]):
        rows.append((_DIM, f"... and {len(view['ranks']) - len(shown)} more"))
    for event in events[-3:]:
        stamp = time.strftime("%H:%M:%S", time.localtime(event["time"]))
        rows.append((_RED if event["bad"] else _DIM, f"{stamp} {event['text']}"))
    left = height - len(rows) - 1
    rows += [(_PLAIN, line) for line in (lines[-left:] if left > 0 else [])]
    rows = (rows + [(_PLAIN, "")] * height)[:height]
    return [f"{colour}{_plain(text)[:width]}{_PLAIN}\x1b[K" for colour, text in rows]


def summary(view: Mapping[str, Any]) -> str:
    """The whole job in a line: "4 ranks on 2 hosts, 8.1 steps/s, 12% waiting, 3.2 GB"."""
    totals = view["totals"]
    hosts = f" on {view['hosts']} hosts" if view["hosts"] > 1 else ""
    parts = [f"{totals['ranks']} ranks{hosts}"]
    if totals["samples_s"] is not None:
        parts.append(f"{totals['samples_s']:.0f} samples/s")
    if totals["steps_s"] is not None:
        parts.append(f"{totals['steps_s']:.1f} steps/s")
    if totals["waiting"] is not None:
        parts.append(f"{totals['waiting']:.0%} waiting")
    parts.append(_size(totals["memory"]))
    if totals["bad"]:
        parts.append(f"{totals['bad']} not well")
    if view["end"] is not None:
        parts.append("ended" if not view["end"] else "failed")
    return ", ".join(parts)


def _row(row: Mapping[str, Any]) -> str:
    step = "" if row["step_s"] is None else f"{row['step_s'] * 1000:.0f} ms"
    speed = "" if row["steps_s"] is None else f"{row['steps_s']:.1f}"
    waits = "" if row["waiting"] is None else f"{row['waiting']:.0%}"
    rank = str(row["rank"]) if row["rank"] >= 0 else "-"
    return _columns(rank, row["host"], step, speed, waits, _size(row["memory"]), doing(row))


def _columns(*words: str) -> str:
    rank, host, step, speed, waits, memory, does = words
    return f"{rank:>5} {host[:16]:<16} {step:>8} {speed:>8} {waits:>6} {memory:>8}  {does}"


def _line(line: Mapping[str, Any]) -> str:
    return f"[{line['rank']}]<{line['channel']}>:{line['text']}"


def _plain(text: str) -> str:
    """Without what would move the cursor: a script's own colours and bars."""
    return "".join(one if one.isprintable() else " " for one in text)


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
