# SPDX-License-Identifier: Apache-2.0
"""Which DataFrames were written to which store: a second fit on the same data does not write it again."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, List

from horovod.spark.common.filesystem_store import AbstractFilesystemStore
from horovod.spark.common.metadata import Dataset


@dataclass
class _Entry:
    df: Any
    wanted: Any
    dataset: Dataset


_lock = threading.Lock()
_entries: Dict[str, List[_Entry]] = {}  # by the path of the training data
_next: Dict[str, int] = {}


def get_or_write(
    df: Any, store: AbstractFilesystemStore, wanted: Any, write: Callable[[int], Dataset]
) -> Dataset:
    """The dataset of a DataFrame: what an earlier call wrote for the same plan, or a new one.

    Args:
        write: writes it under a number of its own.
    """
    key = store.get_train_data_path()
    with _lock:
        for entry in _entries.get(key, []):
            if entry.wanted == wanted and _same_data(entry.df, df):
                if store.exists(store.get_train_data_path(entry.dataset.idx)):
                    return entry.dataset
        idx = _next.get(key, 0)
        _next[key] = idx + 1
    dataset = write(idx)
    with _lock:
        _entries.setdefault(key, []).append(_Entry(df, wanted, dataset))
    return dataset


def clear_training_cache() -> None:
    """Forgets what was written. The files stay until another fit overwrites them."""
    with _lock:
        _entries.clear()
        _next.clear()


def _same_data(one: Any, other: Any) -> bool:
    try:
        return bool(one.sparkSession is other.sparkSession and one.sameSemantics(other))
    except Exception:  # of a session that has ended
        return False
