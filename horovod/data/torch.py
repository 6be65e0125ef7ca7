# SPDX-License-Identifier: Apache-2.0
"""A reader's batches as tensors of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

import numpy as np
import torch
from torch.utils._pytree import tree_map
from torch.utils.data import IterableDataset, get_worker_info

if TYPE_CHECKING:
    from horovod.data.reader import ParquetReader


def tensor_of(array: Any) -> Any:
    """A tensor over the array's memory; what torch has no type for (strings, dates) stays as it is."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
        return array
    return torch.from_numpy(array if array.flags.writeable else array.copy())


class TorchBatches(IterableDataset[Any]):
    """Whole batches, ready to train on; in a DataLoader with batch_size=None and no workers."""

    def __init__(self, reader: ParquetReader, device: Any = None) -> None:
        self.reader = reader
        self.device = device

    def __len__(self) -> int:
        return len(self.reader)

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is not None:
            raise RuntimeError(
                "every worker of the DataLoader would read all of this rank's rows: use num_workers=0, and "
                "ParquetReader(prefetch=...) for a thread that works ahead"
            )
        for batch in self.reader:
            yield tree_map(self._tensor, batch)

    def _tensor(self, array: Any) -> Any:
        tensor = tensor_of(array)
        return tensor if self.device is None or tensor is array else tensor.to(self.device)
