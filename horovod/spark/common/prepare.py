# SPDX-License-Identifier: Apache-2.0
"""From a DataFrame to Parquet files in the store, ready to be read by the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple, Union

from pyspark.ml.linalg import VectorUDT
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, BooleanType, DataType

from horovod.spark.common import metadata, training_cache
from horovod.spark.common.filesystem_store import AbstractFilesystemStore
from horovod.spark.common.metadata import Dataset

Validation = Union[None, float, str]


@dataclass(frozen=True)
class Wanted:
    """What is to be written of a DataFrame."""

    feature_cols: Tuple[str, ...]
    label_cols: Tuple[str, ...]
    sample_weight_col: Optional[str]
    validation: Validation
    partitions: int
    compress_sparse: bool = False
    seed: Optional[int] = None

    @property
    def columns(self) -> List[str]:
        """The columns to write, each once."""
        weight = [self.sample_weight_col] if self.sample_weight_col else []
        return list(dict.fromkeys([*self.feature_cols, *self.label_cols, *weight]))


def check_partitions(num_proc: int, partitions_per_process: int) -> int:
    """The number of Parquet files to write."""
    if num_proc <= 0 or partitions_per_process <= 0:
        raise ValueError(
            f"num_proc={num_proc} and partitions_per_process={partitions_per_process} must both be > 0"
        )
    return num_proc * partitions_per_process


def prepare(df: DataFrame, store: AbstractFilesystemStore, wanted: Wanted) -> Dataset:
    """Writes the DataFrame into the store, unless the same was written before, and looks at the result."""
    check(df, wanted)

    def write(idx: int) -> Dataset:
        train, val = split(df, wanted)
        plain = [_plain(df, name, wanted.compress_sparse) for name in wanted.columns]
        _write(train.select(plain).repartition(wanted.partitions), store.get_train_data_path(idx))
        if val is not None:
            _write(val.select(plain).repartition(wanted.partitions), store.get_val_data_path(idx))
        return metadata.read_metadata(store, idx, val is not None, kinds_of(df, wanted.columns))

    return training_cache.get_or_write(df, store, wanted, write)


def check(df: DataFrame, wanted: Wanted) -> None:
    """Raises ValueError if a column is missing or the validation makes no sense."""
    if not wanted.label_cols:
        raise ValueError("Parameter label_columns cannot be None or empty")
    for name in wanted.label_cols:
        if name not in df.columns:
            raise ValueError(f"Label column {name} does not exist in the DataFrame")
    for name in wanted.feature_cols:
        if name not in df.columns:
            raise ValueError(f"Feature column {name} does not exist in the DataFrame")
    if wanted.sample_weight_col and wanted.sample_weight_col not in df.columns:
        raise ValueError(f"Sample weight column {wanted.sample_weight_col} does not exist in the DataFrame")
    check_validation(wanted.validation, df)


def check_validation(validation: Validation, df: Optional[DataFrame] = None) -> None:
    """Raises ValueError unless it is a fraction or (if there is a DataFrame) a column of it."""
    if validation is None:
        return
    if isinstance(validation, float):
        if not 0 <= validation < 1:
            raise ValueError(f"Validation split {validation} must be in the range: [0, 1)")
    elif isinstance(validation, str):
        if df is not None and validation not in df.columns:
            raise ValueError(f"Validation column {validation} does not exist in the DataFrame")
    else:
        raise ValueError(f'Param validation must be of type "float" or "str", found: {type(validation)}')


def split(df: DataFrame, wanted: Wanted) -> Tuple[DataFrame, Optional[DataFrame]]:
    """The rows to train on and those to validate on."""
    if isinstance(wanted.validation, str):
        column = sql.col(wanted.validation)
        is_bool = isinstance(df.schema[wanted.validation].dataType, BooleanType)
        held_out = column if is_bool else column > 0
        return df.filter(~sql.coalesce(held_out, sql.lit(False))), df.filter(held_out)
    if wanted.validation:
        train, val = df.randomSplit([1.0 - wanted.validation, wanted.validation], seed=wanted.seed)
        return train, val
    return df, None


def kinds_of(df: DataFrame, names: List[str]) -> Dict[str, str]:
    """What the columns of a DataFrame are."""
    return {name: _kind(df.schema[name].dataType) for name in names}


def _kind(data_type: DataType) -> str:
    if isinstance(data_type, VectorUDT):
        return metadata.VECTOR
    return metadata.ARRAY if isinstance(data_type, ArrayType) else metadata.SCALAR


def _plain(df: DataFrame, name: str, compress_sparse: bool) -> Any:
    """A column as it is written: vectors as arrays, unless they are to stay sparse."""
    from pyspark.ml.functions import vector_to_array

    column = sql.col(f"`{name}`")
    if isinstance(df.schema[name].dataType, VectorUDT) and not compress_sparse:
        return vector_to_array(column).alias(name)
    return column


def _write(df: DataFrame, path: str) -> None:
    df.write.mode("overwrite").parquet(path)
