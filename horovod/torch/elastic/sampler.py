# SPDX-License-Identifier: Apache-2.0
"""A sampler that remembers what was processed, so that an epoch goes on after a change of workers."""

from __future__ import annotations

import math
import random
from typing import Any, Dict, Iterator, List, Sized

from torch.utils.data import Sampler

from horovod.torch.mpi_ops import rank, size


class ElasticSampler(Sampler[int]):
    """Shares the indices of a dataset between the ranks and skips those already processed in this epoch.

    Call `record_batch` after each batch and `set_epoch` at the end of each epoch, and keep the sampler in the
    elastic state.

    Args:
        dataset: anything with a length.
        shuffle: visit the indices in random order.
        seed: of the shuffle, the same on all ranks.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        self.num_replicas = 0
        self.rank = 0
        self.remaining_indices: List[int] = []
        self.num_samples = 0
        self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Starts another epoch: a new order, with nothing processed."""
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Counts a batch that every rank has processed."""
        self.processed_num += batch_size * self.num_replicas

    def record_indices(self, indices: Sized) -> None:
        """Counts as many samples, on every rank."""
        self.processed_num += len(indices) * self.num_replicas

    def state_dict(self) -> Dict[str, Any]:
        """What must survive a change of workers."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Goes on from a `state_dict`, with the ranks there are now."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def reset(self) -> None:
        """Shares what is left of the epoch between the ranks there are now."""
        self.num_replicas = size()
        self.rank = rank()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        indices = list(self.remaining_indices)
        while indices and len(indices) < self.total_size:  # every rank gets as many: repeat some
            indices += indices[: self.total_size - len(indices)]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
