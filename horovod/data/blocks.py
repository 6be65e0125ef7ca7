# SPDX-License-Identifier: Apache-2.0
"""The rows of a rank in their final order: windows are read ahead by threads, or kept in memory."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Deque, Dict, Iterator, List, Optional, Tuple

import numpy as np

from horovod.data.columns import Batch, arrays_of, joined
from horovod.data.dealing import Piece, Span
from horovod.data.row_groups import RowGroups

# What is kept in memory is handed out in blocks of this many rows.
_BLOCK_ROWS = 1 << 14


def read_blocks(source: RowGroups, pieces: List[Piece], read_ahead: int) -> Iterator[Batch]:
    """A block for every piece; `read_ahead` more are being read, by as many threads."""
    if read_ahead < 1:
        for piece in pieces:
            yield _load(source, piece)
        return
    pool = ThreadPoolExecutor(read_ahead, "horovod-data")
    waiting: Deque[Future[Batch]] = deque()
    try:
        for piece in pieces:
            waiting.append(pool.submit(_load, source, piece))
            if len(waiting) > read_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class Cache:
    """Keeps the whole part of a rank, which is one piece at the start of each epoch."""

    def __init__(self) -> None:
        self._kept: Dict[Tuple[Span, ...], Batch] = {}

    def blocks(self, source: RowGroups, pieces: List[Piece]) -> Iterator[Batch]:
        """The rows of the pieces, which are read only if they are not here."""
        for piece in pieces:
            arrays = self._kept.get(piece.spans)
            if arrays is None:
                arrays = _read(source, piece)
                if len(piece) == piece.extent:  # not the rest of an epoch that others had begun
                    self._kept = {piece.spans: arrays}
            order = _order(piece)
            for start in range(0, len(piece), _BLOCK_ROWS):
                stop = min(start + _BLOCK_ROWS, len(piece))
                yield _rows(arrays, piece, order, start, stop)


def _load(source: RowGroups, piece: Piece) -> Batch:
    return _rows(_read(source, piece), piece, _order(piece), 0, len(piece))


def _read(source: RowGroups, piece: Piece) -> Batch:
    """All rows of the piece's spans as they lie."""
    parts = [arrays_of(source.read(span)) for span in piece.spans]
    return {name: joined([part[name] for part in parts]) for name in parts[0]}


def _order(piece: Piece) -> Optional[np.ndarray]:
    """The wanted rows of what `_read` returns; None: as they lie."""
    if not piece.key:
        return None
    # The old generator, whose numbers are the same in every version of NumPy.
    source = np.random.RandomState([number & 0xFFFFFFFF for number in piece.key])
    return np.asarray(source.permutation(piece.extent)[piece.start : piece.stop])


def _rows(arrays: Batch, piece: Piece, order: Optional[np.ndarray], start: int, stop: int) -> Batch:
    """The piece's rows from `start` to `stop`."""
    if order is None:
        return {name: array[piece.start + start : piece.start + stop] for name, array in arrays.items()}
    return {name: array.take(order[start:stop], axis=0) for name, array in arrays.items()}


def cut_into_batches(blocks: Iterator[Batch], size: int) -> Iterator[Batch]:
    """Blocks of any length, cut and joined into batches; the last may be smaller."""
    rest: List[Batch] = []
    have = 0
    for block in blocks:
        length = len(next(iter(block.values())))
        start = 0
        if have:
            start = min(size - have, length)
            rest.append({name: array[:start] for name, array in block.items()})
            have += start
            if have < size:
                continue
            yield _put_together(rest)
            rest, have = [], 0
        while length - start >= size:
            yield {name: array[start : start + size] for name, array in block.items()}
            start += size
        if start < length:
            rest, have = [{name: array[start:] for name, array in block.items()}], length - start
    if have:
        yield _put_together(rest)


def _put_together(parts: List[Batch]) -> Batch:
    return {name: joined([part[name] for part in parts]) for name in parts[0]}
