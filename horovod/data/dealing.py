# SPDX-License-Identifier: Apache-2.0
"""Which rows of a dataset go to which rank, in which order: arithmetic only, the same on every rank.

A dataset is a list of row groups. An epoch starts with the groups in an order made from (seed, epoch). Every
rank takes an equal, contiguous part of that sequence, cut to the row, so all have the same number of rows
and of steps and no row goes to two of them. A rank then puts neighbouring parts together into windows, and
mixes the rows within each.

A place in an epoch is the list of its stages: "4 ranks took 1,280 rows each, then 3 ranks took 512 each". The
same arithmetic says what is left after a stage; the next one deals that out to as many ranks as it has.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import List, Optional, Sequence, Tuple

# Part of a row group: its number, the first row, the end.
Span = Tuple[int, int, int]


@dataclass(frozen=True)
class Piece:
    """Rows `start` to `stop` of some spans laid end to end.

    The key says in which order: None for a single span that is no part of a window yet, () for a window in
    the order of its spans, else a window that is mixed by a generator with that seed.
    """

    spans: Tuple[Span, ...]
    start: int
    stop: int
    key: Optional[Tuple[int, ...]] = None

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def extent(self) -> int:
        """Rows of all spans, of which start..stop are wanted."""
        return sum(end - first for _, first, end in self.spans)

    def cut(self, start: int, stop: int) -> Piece:
        """The part from its row `start` up to `stop`."""
        if self.key is None:
            ((group, first, _),) = self.spans
            return Piece(((group, first + start, first + stop),), 0, stop - start)
        return replace(self, start=self.start + start, stop=self.start + stop)


@dataclass(frozen=True)
class Groups:
    """Rows and bytes of every row group of a dataset."""

    rows: Tuple[int, ...]
    bytes: Tuple[int, ...]

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.rows)


@dataclass(frozen=True)
class Mixing:
    """How rows are put into another order.

    A window ends with the row group that brings it to `window_rows` rows or `window_bytes` bytes; None for
    both: all that a rank has is one window. Without a shuffle the rows stay in the order of the files.
    """

    shuffle: bool = True
    seed: int = 0
    window_rows: Optional[int] = None
    window_bytes: Optional[int] = None
    # Every epoch deals the groups out alike, so that a rank can keep its part in memory.
    same_parts: bool = False


@dataclass(frozen=True)
class Stage:
    """A stretch of an epoch in which `size` ranks took `rows` rows each."""

    size: int
    rows: int
    mixing: Mixing


def opening(groups: Groups, mixing: Mixing, epoch: int) -> List[Piece]:
    """All rows, at the start of an epoch."""
    order = list(range(len(groups.rows)))
    if mixing.shuffle:
        order = shuffled(order, mixing.seed, 0 if mixing.same_parts else epoch, 0)
    return [Piece(((group, 0, groups.rows[group]),), 0, groups.rows[group]) for group in order]


def shuffled(items: Sequence[int], *key: int) -> List[int]:
    """The items in an order made from the key, the same in every version of Python."""
    source = random.Random(" ".join(map(str, key)))  # text seeds and random() are stable by contract
    return sorted(items, key=lambda _: source.random())


def deal(pieces: Sequence[Piece], size: int) -> Tuple[List[List[Piece]], List[Piece]]:
    """Equal parts for `size` ranks, and the rest: fewer rows than ranks."""
    share = sum(map(len, pieces)) // size
    parts: List[List[Piece]] = [[] for _ in range(size + 1)]
    place = 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            rank = min(place // share, size) if share else size
            stop = min(len(piece), start + (rank + 1) * share - place) if rank < size else len(piece)
            parts[rank].append(piece.cut(start, stop))
            place += stop - start
            start = stop
    return parts[:size], parts[size]


def windows(part: Sequence[Piece], groups: Groups, mixing: Mixing, place: Tuple[int, ...]) -> List[Piece]:
    """Puts neighbouring pieces of a rank together, to be read and mixed at once.

    Pieces that have a key are what is left of windows from an earlier stage; they stay as they are.

    Args:
        place: epoch, stage and rank: no two windows are mixed alike.
    """
    made: List[Piece] = []
    spans: List[Span] = []
    rows = size = 0
    for number, piece in enumerate(part):
        if piece.key is not None:
            made.append(piece)
        else:
            spans += piece.spans
            rows += len(piece)
            group = piece.spans[0][0]
            size += groups.bytes[group] * len(piece) // max(groups.rows[group], 1)
        full = _reached(rows, mixing.window_rows) or _reached(size, mixing.window_bytes)
        if spans and (full or number == len(part) - 1):
            key = (mixing.seed, *place, len(made)) if mixing.shuffle else ()
            made.append(Piece(tuple(spans), 0, rows, key))
            spans, rows, size = [], 0, 0
    return made


def _reached(value: int, limit: Optional[int]) -> bool:
    return limit is not None and value >= limit


def after(pieces: Sequence[Piece], rows: int) -> List[Piece]:
    """What is left when the first rows were taken."""
    left = []
    for piece in pieces:
        taken = min(rows, len(piece))
        rows -= taken
        if taken < len(piece):
            left.append(piece.cut(taken, len(piece)))
    return left


def remaining(groups: Groups, mixing: Mixing, epoch: int, stages: Sequence[Stage]) -> List[Piece]:
    """What nobody has taken after these stages of an epoch, in the order in which it is dealt out next."""
    pieces = opening(groups, stages[0].mixing if stages else mixing, epoch)
    for number, stage in enumerate(stages):
        parts, left = deal(pieces, stage.size)
        for rank, part in enumerate(parts):
            left += after(windows(part, groups, stage.mixing, (epoch, number, rank)), stage.rows)
        if stage.mixing.shuffle:
            left = [left[i] for i in shuffled(range(len(left)), stage.mixing.seed, epoch, number + 1)]
        pieces = [piece for some in left for piece in _spans_if_untouched(some)]
    return pieces


def stream(
    groups: Groups, mixing: Mixing, epoch: int, stages: Sequence[Stage], rank: int, size: int
) -> List[Piece]:
    """The windows that a rank reads, in order, when `size` ranks go on after these stages of an epoch."""
    parts, _ = deal(remaining(groups, mixing, epoch, stages), size)
    return windows(parts[rank], groups, mixing, (epoch, len(stages), rank))


def _spans_if_untouched(piece: Piece) -> List[Piece]:
    """A window of which nothing was taken is dealt out span by span again."""
    if piece.key is None or len(piece) < piece.extent:
        return [piece]
    return [Piece((span,), 0, span[2] - span[1]) for span in piece.spans]
