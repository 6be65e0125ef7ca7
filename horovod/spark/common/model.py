# SPDX-License-Identifier: Apache-2.0
"""A trained model as a Spark transformer: it adds a column for each of its outputs."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Tuple

import numpy as np
from pyspark.ml import Model
from pyspark.ml.linalg import VectorUDT
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructField, StructType

from horovod.spark.common.metadata import SCALAR, VECTOR, Columns
from horovod.spark.common.params import ModelParams
from horovod.spark.common.persistence import HorovodPersistence

# Takes a batch of each feature column, returns one of each output.
Predict = Callable[[List[np.ndarray]], List[np.ndarray]]

_RESULT = "__horovod_outputs"


class HorovodModel(ModelParams, HorovodPersistence, Model):
    """Base of the models. Subclasses say how to predict."""

    def getOutputCols(self) -> List[str]:
        """The columns that `transform` adds."""
        values = self._values()
        return list(values.output_cols or [f"{label}__output" for label in values.label_columns])

    def _loader(self) -> Callable[[], Predict]:
        """A function that can be pickled; called where the rows are, it returns one that predicts."""
        raise NotImplementedError

    def _transform(self, dataset: DataFrame) -> DataFrame:
        values = self._values()
        outputs, labels = self.getOutputCols(), values.label_columns
        if len(outputs) != len(labels):
            raise Exception("Number of output columns must equal to number of label columns.")
        for name in outputs:
            if name in dataset.columns:
                raise ValueError(f"Output col '{name}' exists in original df schema: {dataset.columns}")
        columns: Columns = values._metadata or {}
        kinds = [columns[label].kind if label in columns else SCALAR for label in labels]
        sizes = self._output_sizes()
        scalar = [kind == SCALAR and size == 1 for kind, size in zip(kinds, sizes)]
        features = [_as_array(dataset, name) for name in values.feature_columns]
        predicted = dataset.withColumn(_RESULT, _udf(self._loader(), scalar)(*features))
        added = [
            _as_label(sql.col(f"{_RESULT}._{i}"), kind).alias(name)
            for i, (name, kind) in enumerate(zip(outputs, kinds))
        ]
        return predicted.select(*[sql.col(f"`{name}`") for name in dataset.columns], *added)

    def _output_sizes(self) -> List[int]:
        """Numbers in a row of each output: found by trying, with a row of zeros."""
        values = self._values()
        columns: Columns = values._metadata or {}
        missing = [name for name in values.feature_columns if name not in columns]
        if missing:
            raise ValueError(f"the model does not know the shapes of its features {missing}")
        used = [columns[name] for name in values.feature_columns]
        outputs = self._loader()()([np.zeros((1, *column.shape), column.dtype) for column in used])
        return [int(np.prod(output.shape[1:], dtype=np.int64)) for output in outputs]


def _udf(loader: Callable[[], Predict], scalar: List[bool]) -> Any:
    """A function of Spark over the feature columns; its result has a field for each output."""
    import pandas as pd

    def predict_all(batches: Iterator[Any]) -> Iterator[Any]:
        predict = loader()  # once for a partition, not for each batch
        for batch in batches:
            columns = batch if isinstance(batch, tuple) else (batch,)  # Spark does not wrap a single one
            outputs = predict([_matrix(column) for column in columns])
            fields = zip(outputs, scalar)
            yield pd.DataFrame({f"_{i}": _field(*field) for i, field in enumerate(fields)})

    # They tell Spark which kind of function this is.
    predict_all.__annotations__ = {
        "batches": Iterator[Tuple[pd.Series, ...]],
        "return": Iterator[pd.DataFrame],
    }
    types = [DoubleType() if one else ArrayType(FloatType()) for one in scalar]
    return sql.pandas_udf(
        predict_all, StructType([StructField(f"_{i}", kind) for i, kind in enumerate(types)])
    )


def _field(output: np.ndarray, scalar: bool) -> Any:
    rows = len(output)
    return output.reshape(rows).astype(float) if scalar else list(output.reshape(rows, -1).astype(np.float32))


def _matrix(column: Any) -> np.ndarray:
    values = column.to_numpy()
    return np.stack(list(values)) if values.dtype == object else values


def _as_array(df: DataFrame, name: str) -> Any:
    from pyspark.ml.functions import vector_to_array

    column = sql.col(f"`{name}`")
    return vector_to_array(column) if isinstance(df.schema[name].dataType, VectorUDT) else column


def _as_label(column: Any, kind: str) -> Any:
    """An output where the label was a vector is one, too."""
    from pyspark.ml.functions import array_to_vector

    return array_to_vector(column.cast("array<double>")) if kind == VECTOR else column
