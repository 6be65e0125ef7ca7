# SPDX-License-Identifier: Apache-2.0
"""The drawings of the page, as SVG in text. Colours are CSS classes, so that they follow the page's theme."""

from __future__ import annotations

import math
from html import escape
from typing import List, Optional, Sequence, Tuple

WIDTH = 860
_LEFT, _RIGHT = 150, 20  # room for labels

Part = Tuple[str, float]  # CSS class and size


def stacked_bars(rows: Sequence[Tuple[str, Sequence[Part]]]) -> str:
    """Horizontal bars, each as long as the whole width: shares of compute, wait, communication."""
    height, body = 24, []
    for number, (label, parts) in enumerate(rows):
        whole = sum(size for _, size in parts) or 1.0
        x, y = float(_LEFT), number * height + 4
        body.append(_text(_LEFT - 8, y + 12, label, "end"))
        for kind, size in parts:
            width = size / whole * (WIDTH - _LEFT - _RIGHT)
            body.append(_rect(x, y, width, 16, kind, f"{label}: {kind} {size / whole * 100:.1f} %"))
            if width > 40:
                body.append(_text(x + width / 2, y + 12, f"{size / whole * 100:.0f} %", "middle", "on"))
            x += width
    return _svg(len(rows) * height + 8, body)


def columns(rows: Sequence[Tuple[str, Sequence[Part]]], unit: str, height: int = 200) -> str:
    """Vertical stacked columns side by side, with an axis of their sums; the label is shown on pointing."""
    top = max((sum(size for _, size in parts) for _, parts in rows), default=0.0) or 1.0
    width = (WIDTH - _LEFT - _RIGHT) / max(1, len(rows))
    body = _ticks([(1 - i / 4) * height for i in range(5)], [f"{top * i / 4:.3g} {unit}" for i in range(5)])
    for number, (label, parts) in enumerate(rows):
        y = float(height)
        for kind, size in parts:
            tall = size / top * height
            y -= tall
            title = f"{label}: {kind} {size:.3g} {unit}"
            body.append(_rect(_LEFT + number * width, y, max(0.5, width * 0.92), tall, kind, title))
    if rows:
        body.append(_text(_LEFT, height + 18, rows[0][0], "start"))
        body.append(_text(WIDTH - _RIGHT, height + 18, rows[-1][0], "end"))
    return _svg(height + 26, body)


def heat(rows: Sequence[Tuple[str, Sequence[float]]]) -> str:
    """A row of cells for each label, from nothing (0) to the most there is (1)."""
    height, body = 16, []
    for number, (label, values) in enumerate(rows):
        y = number * height
        body.append(_text(_LEFT - 8, y + 12, label, "end"))
        width = (WIDTH - _LEFT - _RIGHT) / max(1, len(values))
        for at, value in enumerate(values):
            if value > 0:
                x = _LEFT + at * width
                body.append(
                    f'<rect class="wait" fill-opacity="{value:.2f}" x="{x:.2f}" y="{y}" '
                    f'width="{width:.2f}" height="{height - 2}"/>'
                )
    return _svg(len(rows) * height + 4, body)


def curves(
    lines: Sequence[Tuple[str, Sequence[Tuple[float, float]]]],
    x_labels: Sequence[Tuple[float, str]],
    y_labels: Sequence[Tuple[float, str]],
    height: int = 220,
) -> str:
    """Curves over two logarithmic axes; a class and its points each."""
    xs, ys = [x for x, _ in x_labels], [y for y, _ in y_labels]

    def place(x: float, y: float) -> Tuple[float, float]:
        right = _share(x, min(xs), max(xs)) * (WIDTH - _LEFT - _RIGHT)
        return _LEFT + right, height - _share(y, min(ys), max(ys)) * height

    body = _ticks([place(xs[0], y)[1] for y in ys], [label for _, label in y_labels])
    for x, label in x_labels:
        body.append(_text(place(x, ys[0])[0], height + 18, label, "middle"))
    for kind, points in lines:
        placed = [place(x, y) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        body.append(f'<polyline class="line {kind}" points="{path}"/>')
        body += [f'<circle class="dot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in placed]
    return _svg(height + 26, body)


def _share(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low) if high > low else 0.5


def _ticks(heights: Sequence[float], labels: Sequence[str]) -> List[str]:
    body = []
    for y, label in zip(heights, labels):
        body.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        body.append(_text(_LEFT - 8, y + 4, label, "end"))
    return body


def _rect(x: float, y: float, width: float, height: float, kind: str, title: Optional[str]) -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" width="{max(0.0, width):.2f}" '
        f'height="{max(0.0, height):.2f}">{inside}</rect>'
    )


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(height: int, body: Sequence[str]) -> str:
    return (
        f'<div class="wide"><svg viewBox="0 -12 {WIDTH} {height + 12}" role="img" '
        'xmlns="http://www.w3.org/2000/svg">' + "".join(body) + "</svg></div>"
    )
