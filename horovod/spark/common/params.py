# SPDX-License-Identifier: Apache-2.0
"""The parameters of estimators and their models, as tables; each row becomes a Spark ML Param.

A row named batch_size gives the attribute `batch_size`, the methods `setBatchSize` and `getBatchSize`, and
the keyword argument `batch_size`.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Type, TypeVar

from pyspark.ml.param import Param, Params, TypeConverters

Class = TypeVar("Class", bound=Type[Any])


class Row(NamedTuple):
    """One parameter."""

    name: str
    doc: str
    default: Any = None
    # "ShufflingBufferSize" where the methods are not called after the parameter.
    method: Optional[str] = None
    # Further names of the setter.
    aliases: Sequence[str] = ()
    # Spark's check of the values.
    convert: Optional[Callable[[Any], Any]] = None

    @property
    def suffix(self) -> str:
        """What follows get and set, e.g. "BatchSize"."""
        return self.method or "".join(word.capitalize() for word in self.name.split("_"))


_INT, _BOOL, _STRING = TypeConverters.toInt, TypeConverters.toBoolean, TypeConverters.toString
_STRINGS = TypeConverters.toListString

COMMON = [
    Row("num_proc", "number of ranks; not together with backend", convert=_INT),
    Row("backend", "how ranks are started, e.g. SparkBackend(num_proc=4)"),
    Row("store", "where data, checkpoints and logs are kept, see Store.create"),
    Row("model", "the model to train"),
    Row(
        "optimizer", "the optimizer; its learning rate is that of one rank and is multiplied by their number"
    ),
    Row("loss", "the loss, or one for each output"),
    Row("loss_weights", "weights of the losses"),
    Row("sample_weight_col", "a column with the weight of each row", convert=_STRING),
    Row("gradient_compression", "a compressor, e.g. hvd.Compression.fp16"),
    Row("compress_sparse_cols", "keep sparse vectors sparse in the files", False, convert=_BOOL),
    Row("metrics", "what else to compute", []),
    Row("feature_cols", "columns that go into the model, one for each input", convert=_STRINGS),
    Row("label_cols", "columns that it should produce, one for each output", convert=_STRINGS),
    Row(
        "continuous_cols",
        "columns of numbers, for data modules that tell them from categories",
        convert=_STRINGS,
    ),
    Row("categorical_cols", "columns of categories, for such data modules", convert=_STRINGS),
    Row("validation", "part of the rows to validate on (0.1), or a column that is above 0 or true in them"),
    Row("callbacks", "callbacks of the framework, run on every rank", []),
    Row("batch_size", "rows in a batch of one rank", 32, convert=_INT),
    Row("val_batch_size", "the same for validation; batch_size if not given", convert=_INT),
    Row("epochs", "how many times the data is used", 1, convert=_INT),
    Row("verbose", "0 prints nothing, 1 progress, 2 more", 1, convert=_INT),
    Row("random_seed", "of the order of the rows, the split and the framework", convert=_INT),
    Row(
        "shuffle_buffer_size",
        "rows that are mixed with each other",
        method="ShufflingBufferSize",
        convert=_INT,
    ),
    Row("shuffle", "mix the rows", True, convert=_BOOL),
    Row("partitions_per_process", "Parquet files for each rank", 10, convert=_INT),
    Row("run_id", "name of the run in the store; a run that has a checkpoint is resumed", convert=_STRING),
    Row("train_steps_per_epoch", "batches of an epoch, if not all", convert=_INT),
    Row("validation_steps_per_epoch", "batches of a validation, if not all", convert=_INT),
    Row("transformation_fn", "is called with each batch as a pandas.DataFrame, and returns one"),
    Row("transformation_edit_fields", "fields that it adds or changes: (name, numpy type, shape, nullable)"),
    Row("transformation_removed_fields", "names of columns that it takes away"),
    Row(
        "train_reader_num_workers", "threads that read training data", 2, "TrainReaderNumWorker", convert=_INT
    ),
    Row("val_reader_num_workers", "threads that read validation data", 2, "ValReaderNumWorker", convert=_INT),
    Row("reader_pool_type", "accepted for compatibility: the reader uses threads", "thread"),
    Row("label_shapes", "shapes of the labels of one row, where they are not those of the columns"),
    Row(
        "inmemory_cache_all",
        "keep each rank's part of the data in memory",
        False,
        "InMemoryCacheAll",
        convert=_BOOL,
    ),
    Row("use_gpu", "train on GPUs where there are any", True, convert=_BOOL),
    Row("mp_start_method", "accepted for compatibility: nothing is started with multiprocessing"),
    Row("backward_passes_per_step", "batches whose gradients are added up before a step", 1, convert=_INT),
    Row("data_module", "a DataModule class that reads the data in another way"),
    Row("tensorflow_dataset_prefetch_buffer_size", "batches that tf.data fetches ahead", 0, convert=_INT),
]

MODEL = [
    Row("history", "what was measured in training"),
    Row("model", "the trained model"),
    Row("feature_columns", "columns that go into the model"),
    Row("label_columns", "columns that were trained for", aliases=("LabelColoumns",)),
    Row("run_id", "name of the run in the store"),
    Row(
        "output_cols",
        "names of the columns that transform adds; <label>__output if not given",
        convert=_STRINGS,
    ),
    Row("_metadata", "what is known about the columns", method="_metadata"),
]


def has_params(rows: List[Row]) -> Callable[[Class], Class]:
    """Gives a class the attributes and methods of some parameters."""

    def decorate(cls: Class) -> Class:
        table: Dict[str, Row] = dict(getattr(cls, "_rows", {}))
        for row in rows:
            table[row.name] = row
            setattr(cls, row.name, Param(Params._dummy(), row.name, row.doc, row.convert))
            if not row.name.startswith("_"):
                _add_methods(cls, row)
        cls._rows = table
        cls.__signature__ = _signature(table)
        return cls

    return decorate


def _add_methods(cls: Any, row: Row) -> None:
    def getter(self: Any) -> Any:
        return self.getOrDefault(row.name)

    def setter(self: Any, value: Any) -> Any:
        return self._set(**{row.name: value})

    getter.__doc__ = f"Returns {row.name}: {row.doc}."
    setter.__doc__ = f"Sets {row.name}: {row.doc}."
    getter.__name__, setter.__name__ = f"get{row.suffix}", f"set{row.suffix}"
    setattr(cls, getter.__name__, getter)
    for suffix in (row.suffix, *row.aliases):
        setattr(cls, f"set{suffix}", setter)


def _signature(table: Dict[str, Row]) -> inspect.Signature:
    """What `help` shows: every parameter is a keyword argument."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [inspect.Parameter(row.name, keyword, default=row.default) for row in table.values()]
    )


class TableParams(Params):
    """Parameters from a table, given as keyword arguments; None leaves one at its default."""

    _rows: Dict[str, Row] = {}

    def __init__(self, **params: Any) -> None:
        super().__init__()
        unknown = [name for name in params if name not in self._rows]
        if unknown:
            raise TypeError(
                f"{type(self).__name__} has no parameter {', '.join(unknown)}; it has {', '.join(self._rows)}"
            )
        self._setDefault(**{row.name: _fresh(row.default) for row in self._rows.values()})
        self._set(**{name: value for name, value in params.items() if value is not None})

    def _values(self) -> SimpleNamespace:
        """All parameters by name, as they are set now."""
        return SimpleNamespace(**{name: self.getOrDefault(name) for name in self._rows})


def _fresh(default: Any) -> Any:
    return default.copy() if isinstance(default, (list, dict)) else default


@has_params(COMMON)
class EstimatorParams(TableParams):
    """The parameters that all estimators have."""


@has_params(MODEL)
class ModelParams(TableParams):
    """The parameters that all trained models have."""
