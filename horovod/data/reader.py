# SPDX-License-Identifier: Apache-2.0
"""A Parquet dataset as batches of NumPy arrays, shared between the ranks of a job.

place -> pieces (dealing.py) -> blocks, read ahead (blocks.py) -> batches -> transform
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from horovod.data import dealing
from horovod.data.ahead import ahead
from horovod.data.blocks import Cache, cut_into_batches, read_blocks
from horovod.data.columns import Batch
from horovod.data.dealing import Mixing
from horovod.data.place import Place
from horovod.data.row_groups import Paths, RowGroups

WINDOW_ROWS = 1 << 16
# Of the files; what Arrow makes of it in memory is usually of the same size.
_WINDOW_BYTES = 128 << 20


@dataclass
class _Iteration:
    """One pass, as far as it has come."""

    start: Place
    size: int
    share: int  # rows for each rank
    yielded: int = 0  # rows


class ParquetReader:
    """Iterates over the batches of an epoch: dictionaries of NumPy arrays by column name.

    Row groups are dealt to the ranks in an order made from (seed, epoch). Every rank gets as many batches of
    the same sizes, and no row comes twice in an epoch; at most size - 1 rows do not come at all. When an
    epoch has been iterated over to its end, the next iteration is that of the next epoch.

    Args:
        path: a Parquet file, a folder of them, or several files: local, or any URL that fsspec knows.
        columns: names of the columns to read; all by default.
        batch_size: rows in a batch of one rank.
        shuffle: deal the row groups in random order and mix the rows within a window.
        seed: of the random order, the same on all ranks.
        rank: which part to read; by default the rank in the job, or everything when there is none.
        size: number of parts.
        drop_last: leave out the last batch of an epoch if it is smaller than the others.
        window: rows that are mixed with each other. They are read at once and held in memory: as many whole
            row groups as it takes, but none more after the first 128 MiB.
        read_ahead: windows that are read, by as many threads, while one is being used; 0 reads when needed.
        transform: is called with every batch; what it returns is yielded instead.
        prefetch: batches that a thread has ready; 0 makes them (and calls `transform`) when asked for.
        cache: keep this rank's part in memory after it was read once. The part is then the same in every
            epoch, and all of its rows are mixed.
        storage_options: what fsspec needs for the file system.
    """

    def __init__(
        self,
        path: Paths,
        columns: Optional[Sequence[str]] = None,
        batch_size: int = 32,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: Optional[int] = None,
        size: Optional[int] = None,
        drop_last: bool = False,
        window: int = WINDOW_ROWS,
        read_ahead: int = 2,
        transform: Optional[Callable[[Batch], Any]] = None,
        prefetch: int = 0,
        cache: bool = False,
        storage_options: Optional[Dict[str, Any]] = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        if (rank is None) != (size is None):
            raise ValueError("give both rank and size, or neither")
        if rank is not None and size is not None and not 0 <= rank < size:
            raise ValueError(f"rank must be in 0..{size - 1}, not {rank}")
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._path = path
        self._columns = columns
        self._storage_options = storage_options
        self._part = None if rank is None or size is None else (rank, size)
        self._read_ahead = read_ahead
        self._transform = transform
        self._prefetch = prefetch
        self._cache = Cache() if cache else None
        rows, size_limit = (None, None) if cache else (window, _WINDOW_BYTES)
        self._mixing = Mixing(shuffle, seed, rows, size_limit, same_parts=cache)
        self._opened: Optional[RowGroups] = None
        self._next = Place()
        self._last: Optional[_Iteration] = None

    # ---------------------------------------------------------------------------------- what there is

    @property
    def rank(self) -> int:
        """The part that is read."""
        return self._rank_and_size()[0]

    @property
    def size(self) -> int:
        """The number of parts."""
        return self._rank_and_size()[1]

    @property
    def rows(self) -> int:
        """Rows of the whole dataset."""
        return self._source.groups.total

    @property
    def columns(self) -> List[str]:
        """The columns of a batch, before `transform`."""
        return self._source.columns

    @property
    def schema(self) -> Any:
        """Arrow's description of the whole dataset."""
        return self._source.schema

    def __len__(self) -> int:
        """Batches that the next iteration yields, on every rank."""
        return self._steps(self._next.rows_left(self._source.groups) // self.size)

    # -------------------------------------------------------------------------------------- the place

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration is part of."""
        return self._next.epoch

    def set_epoch(self, epoch: int) -> None:
        """The next iteration starts at the beginning of this epoch."""
        self._next, self._last = Place(epoch), None

    def state_dict(self, steps: Optional[int] = None) -> Dict[str, Any]:
        """The place in the epoch, as plain data: the same on every rank.

        Args:
            steps: batches that were used since the iteration was begun; by default all that were yielded.
                Say it when something between the reader and you fetches batches ahead.
        """
        place = self._next
        if self._last is not None:
            last = self._last
            rows = last.yielded if steps is None else min(steps * self.batch_size, last.share)
            if self._steps(rows) >= self._steps(last.share):
                place = last.start.next_epoch()
            else:
                place = last.start.after(last.size, rows, self._mixing)
        return place.to_dict(self._source.groups)

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """The next iteration goes on from there, with as many ranks as there are now."""
        self._next, self._last = Place.from_dict(state, self._source.groups), None

    # --------------------------------------------------------------------------------------- iterating

    def __iter__(self) -> Iterator[Any]:
        rank, size = self._rank_and_size()
        place, groups = self._next, self._source.groups
        left = place.rows_left(groups)
        if left < size:
            raise ValueError(
                f"{self._source.name} has {left} rows left in epoch {place.epoch}: too few for {size} ranks"
            )
        pieces = dealing.stream(groups, self._mixing, place.epoch, place.stages, rank, size)
        self._last = _Iteration(place, size, left // size)
        return self._counted(self._last, ahead(self._batches(pieces, len(self)), self._prefetch))

    def forever(self) -> Iterator[Any]:
        """Batches of one epoch after the other, without end."""
        while True:
            yield from self

    def to_torch(self, device: Any = None) -> Any:
        """An iterable dataset of torch: the same batches with tensors, which share the arrays' memory.

        Args:
            device: where the tensors go; by default they stay in the arrays' memory.
        """
        from horovod.data.torch import TorchBatches

        return TorchBatches(self, device)

    def to_tf(self) -> Any:
        """The same batches as a tf.data.Dataset; each iteration over it is an epoch."""
        from horovod.data.tensorflow import dataset_of

        return dataset_of(self)

    def example(self, rows: int = 1) -> Any:
        """A batch of the first rows of the dataset, transformed; moves nothing on."""
        groups = self._source.groups
        group = next((number for number, count in enumerate(groups.rows) if count), None)
        if group is None:
            raise ValueError(f"there are no rows in {self._source.name}")
        piece = dealing.Piece(((group, 0, min(rows, groups.rows[group])),), 0, min(rows, groups.rows[group]))
        return next(self._batches([piece], 1, keep=False))

    # ----------------------------------------------------------------------------------------- private

    def _counted(self, iteration: _Iteration, batches: Any) -> Iterator[Any]:
        with closing(batches):
            for number, batch in enumerate(batches, 1):
                iteration.yielded = min(number * self.batch_size, iteration.share)
                yield batch
        if self._last is iteration:  # no other iteration was begun meanwhile
            self._next = iteration.start.next_epoch()

    def _batches(self, pieces: List[dealing.Piece], steps: int, keep: bool = True) -> Iterator[Any]:
        if self._cache is not None and keep:
            blocks: Any = self._cache.blocks(self._source, pieces)
        else:
            blocks = read_blocks(self._source, pieces, self._read_ahead)
        with closing(blocks):
            for batch in islice(cut_into_batches(blocks, self.batch_size), steps):
                yield batch if self._transform is None else self._transform(batch)

    @property
    def _source(self) -> RowGroups:
        if self._opened is None:
            self._opened = RowGroups(self._path, self._storage_options, self._columns)
        return self._opened

    def _rank_and_size(self) -> Tuple[int, int]:
        if self._part is not None:
            return self._part
        module = sys.modules.get("horovod.common.basics")  # without it nobody has joined a job
        if module is not None and module.basics.is_initialized():
            return module.basics.rank(), module.basics.size()
        return 0, 1

    def _steps(self, rows: int) -> int:
        return rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)

    def __getstate__(self) -> Dict[str, Any]:
        cache = None if self._cache is None else Cache()
        return dict(self.__dict__, _opened=None, _cache=cache, _last=None)
