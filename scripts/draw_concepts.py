#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/concepts.md, as SVG files in docs/assets/. Needs nothing but Python.

python scripts/draw_concepts.py            write them
python scripts/draw_concepts.py --check    exit with 1 if one is not current
"""

from __future__ import annotations

import os
import sys
from typing import Dict, List, Sequence, Tuple

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "assets")
COLORS = ["#4f7cac", "#c0704d", "#6a994e", "#8e6c8a"]  # one a rank; readable on light and dark ground
MIXED = "#5f6b7a"
SIZE, GAP = 34, 6
Cell = Tuple[str, str]  # text and color


class Drawing:
    """Shapes on a canvas that grows with them."""

    def __init__(self) -> None:
        self.shapes: List[str] = []
        self.width = self.height = 0

    def grow(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, int(x)), max(self.height, int(y))

    def text(self, x: float, y: float, text: str, color: str = "#7d8590", anchor: str = "middle") -> None:
        self.shapes.append(
            f'<text x="{x:g}" y="{y:g}" fill="{color}" font-size="13" text-anchor="{anchor}">{text}</text>'
        )
        self.grow(x + 4 * len(text), y + 6)

    def cell(self, x: float, y: float, cell: Cell) -> None:
        text, color = cell
        fill, line = color or "none", "" if color else ' stroke-dasharray="3 3"'
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{SIZE}" height="{SIZE}" rx="4" fill="{fill}" '
            f'stroke="{color or "#7d8590"}"{line}/>'
        )
        self.text(x + SIZE / 2, y + SIZE / 2 + 5, text, "#ffffff" if color else "#7d8590")
        self.grow(x + SIZE, y + SIZE)

    def arrow(self, x: float, y: float, length: float, label: str) -> None:
        self.shapes.append(
            f'<path d="M{x:g} {y:g} h{length:g} m-8 -5 l8 5 l-8 5" fill="none" stroke="#7d8590" '
            'stroke-width="2"/>'
        )
        self.text(x + length / 2, y - 10, label)

    def box(self, x: float, y: float, width: float, height: float, label: str) -> None:
        self.shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="none" '
            'stroke="#7d8590"/>'
        )
        self.text(x + 10, y + 18, label, anchor="start")
        self.grow(x + width, y + height)

    def svg(self, title: str) -> str:
        body = "\n".join(self.shapes)
        width, height = self.width + 10, self.height + 10
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="system-ui, sans-serif" role="img">'
            f"<title>{title}</title>\n{body}\n</svg>\n"
        )


def before_and_after(before: Sequence[List[Cell]], after: Sequence[List[Cell]], label: str) -> Drawing:
    """The tensors of the ranks, one row each, before and after a collective."""
    drawing = Drawing()
    left = 70
    middle = left + max(len(row) for row in before) * (SIZE + GAP) + 10
    right = middle + 150
    for rank, (row, result) in enumerate(zip(before, after)):
        y = 10 + rank * (SIZE + 12)
        drawing.text(8, y + SIZE / 2 + 5, f"rank {rank}", COLORS[rank], anchor="start")
        for number, one in enumerate(row):
            drawing.cell(left + number * (SIZE + GAP), y, one)
        for number, one in enumerate(result):
            drawing.cell(right + number * (SIZE + GAP), y, one)
    drawing.arrow(middle, 10 + len(before) * (SIZE + 12) / 2, 120, label)
    return drawing


def topology() -> Drawing:
    """Two hosts of two ranks each, with all their numbers."""
    drawing = Drawing()
    for host in range(2):
        x = 10 + host * 270
        drawing.box(x, 10, 250, 170, f"host {'ab'[host]}")
        for local in range(2):
            rank = 2 * host + local
            left = x + 18 + local * 112
            drawing.shapes.append(
                f'<rect x="{left}" y="44" width="102" height="120" rx="6" fill="{COLORS[rank]}"/>'
            )
            rows = [f"rank {rank} of 4", f"local {local} of 2", f"cross {host} of 2"]
            for number, row in enumerate(rows):
                drawing.text(left + 51, 84 + 30 * number, row, "#ffffff")
    return drawing


def process_sets() -> Drawing:
    """Four ranks in two sets."""
    drawing = Drawing()
    drawing.box(10, 10, 470, 170, "all ranks: the global set")
    for number, (name, ranks) in enumerate((("set of 0 and 2", (0, 2)), ("set of 1 and 3", (1, 3)))):
        x = 24 + number * 228
        drawing.box(x, 40, 214, 125, name)
        for position, rank in enumerate(ranks):
            left = x + 12 + position * 98
            drawing.shapes.append(
                f'<rect x="{left}" y="72" width="90" height="78" rx="6" fill="{COLORS[rank]}"/>'
            )
            drawing.text(left + 45, 106, f"rank {rank}", "#ffffff")
            drawing.text(left + 45, 130, f"number {position}", "#ffffff")
    return drawing


def drawings() -> Dict[str, str]:
    """File names and their contents."""

    def row(rank: int, *texts: str) -> List[Cell]:
        return [(text, COLORS[rank]) for text in texts]

    a = [row(r, *(f"{c}{r}" for c in "ab")) for r in range(3)]
    sums = [("Σa", MIXED), ("Σb", MIXED)]
    rows = [row(0, "a0"), row(1, "a1", "b1"), row(2, "a2")]
    everything = [cell for r in rows for cell in r]
    square = [row(r, *(f"{r}→{c}" for c in range(3))) for r in range(3)]
    blocks = [row(r, *(f"{c}{r}" for c in "abc")) for r in range(3)]
    empty = [[("", ""), ("", "")]]
    pictures = {
        "topology": (topology(), "rank, local rank and cross rank of four processes on two hosts"),
        "allreduce": (before_and_after(a, [sums] * 3, "allreduce"), "allreduce"),
        "allgather": (before_and_after(rows, [everything] * 3, "allgather"), "allgather"),
        "broadcast": (
            before_and_after([row(0, "a", "b"), *empty, *empty], [row(0, "a", "b")] * 3, "broadcast"),
            "broadcast from rank 0",
        ),
        "alltoall": (
            before_and_after(square, [[square[c][r] for c in range(3)] for r in range(3)], "alltoall"),
            "alltoall",
        ),
        "reducescatter": (
            before_and_after(blocks, [[(f"Σ{c}", MIXED)] for c in "abc"], "reducescatter"),
            "reducescatter",
        ),
        "process_sets": (process_sets(), "two process sets of two ranks each"),
    }
    return {f"{name}.svg": drawing.svg(title) for name, (drawing, title) in pictures.items()}


def main() -> int:
    """The command line."""
    os.makedirs(FOLDER, exist_ok=True)
    stale = 0
    for name, text in drawings().items():
        path = os.path.join(FOLDER, name)
        current = open(path, encoding="utf-8").read() if os.path.exists(path) else ""
        if current == text:
            continue
        if "--check" in sys.argv[1:]:
            print(f"docs/assets/{name} is not current: run `make docs`", file=sys.stderr)
            stale = 1
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
