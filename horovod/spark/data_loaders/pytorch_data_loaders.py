# SPDX-License-Identifier: Apache-2.0
"""Loaders of tensors for PyTorch, by their earlier names: thin ones over horovod.data.ParquetReader.

PytorchDataLoader           an epoch of the reader, or its first steps
PytorchInfiniteDataLoader   so many steps; the next epoch goes on where this one stopped
PytorchInmemDataLoader      the reader is read once; epochs come from memory
...Async...                 the same, prepared by a thread
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Dict, Iterator, List, Optional

import torch
from torch.utils._pytree import tree_map

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader, ParquetReader
from horovod.data.torch import TorchBatches


class PytorchDataLoader(BaseDataLoader):
    """An epoch of a reader.

    Args:
        reader: reads this rank's part.
        batch_size: accepted for compatibility; the reader has it.
        shuffling_queue_capacity: accepted for compatibility; the reader mixes rows.
        name: for messages.
        limit_step_per_epoch: batches of an epoch; -1 for all.
        verbose: say when an epoch ends.
    """

    def __init__(
        self,
        reader: ParquetReader,
        batch_size: Optional[int] = None,
        shuffling_queue_capacity: int = 0,
        name: str = "",
        limit_step_per_epoch: int = -1,
        verbose: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.reader = reader
        self.name = name
        self.limit_step_per_epoch = limit_step_per_epoch
        self.verbose = verbose

    def __len__(self) -> int:
        return self.limit_step_per_epoch if self.limit_step_per_epoch > 0 else len(self.reader)

    def _iterate(self) -> Iterator[Any]:
        steps = len(self)
        yield from islice(TorchBatches(self.reader), steps)
        if self.verbose:
            print(f"[{self.name}] the epoch ends after {steps} batches", flush=True)


class PytorchInfiniteDataLoader(PytorchDataLoader):
    """Epochs of a given number of steps, cut from one endless sequence of batches."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.limit_step_per_epoch <= 0:
            raise ValueError("an infinite loader needs limit_step_per_epoch: how many batches are an epoch")
        self._batches = self._forever()

    def _forever(self) -> Iterator[Any]:
        while True:
            yield from TorchBatches(self.reader)

    def _iterate(self) -> Iterator[Any]:
        yield from islice(self._batches, len(self))


class PytorchInmemDataLoader(PytorchDataLoader):
    """Keeps all batches in memory after the first epoch.

    Args:
        args: as for PytorchDataLoader, as are the other keyword arguments.
        num_epochs: accepted for compatibility.
        shuffle: mix the rows anew in every epoch.
    """

    def __init__(self, *args: Any, num_epochs: int = 1, shuffle: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shuffle = shuffle
        self._rows: Optional[Dict[str, torch.Tensor]] = None

    def _iterate(self) -> Iterator[Any]:
        if self._rows is None:
            batches: List[Any] = list(TorchBatches(self.reader))
            self._rows = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
        rows, size = self._rows, self.reader.batch_size
        count = len(next(iter(rows.values())))
        order = torch.randperm(count) if self.shuffle else torch.arange(count)
        parts = islice(order.split(size), len(self))
        for part in parts:
            yield tree_map(lambda tensor, part=part: tensor[part], rows)


class PytorchAsyncDataLoader(AsyncDataLoaderMixin, PytorchDataLoader):
    """A thread prepares the batches."""


class PytorchInfiniteAsyncDataLoader(AsyncDataLoaderMixin, PytorchInfiniteDataLoader):
    """A thread prepares the batches."""


class PytorchInmemAsyncDataLoader(AsyncDataLoaderMixin, PytorchInmemDataLoader):
    """A thread prepares the batches."""


# The reader makes batches itself.
PetastormBatchedDataLoader = PytorchDataLoader
