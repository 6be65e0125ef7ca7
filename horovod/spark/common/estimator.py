# SPDX-License-Identifier: Apache-2.0
"""What all estimators do: check, write the DataFrame into the store, train on every rank, make a model."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import Any, Dict, List, Optional, Tuple, Type

from pyspark.ml import Estimator
from pyspark.sql import DataFrame

from horovod.spark.common.backend import Backend, SparkBackend
from horovod.spark.common.datamodule import DataModule
from horovod.spark.common.filesystem_store import AbstractFilesystemStore
from horovod.spark.common.fit_spec import FitSpec
from horovod.spark.common.metadata import Columns, Dataset, read_metadata
from horovod.spark.common.model import HorovodModel
from horovod.spark.common.params import EstimatorParams
from horovod.spark.common.persistence import HorovodPersistence
from horovod.spark.common.prepare import Wanted, check_partitions, check_validation, prepare


class HorovodEstimator(EstimatorParams, HorovodPersistence, Estimator):
    """Base of the estimators. Subclasses say how to check their model, how to train, and what comes out."""

    # Start of the default run_id.
    _PREFIX = ""

    def fit_on_parquet(
        self, params: Optional[Dict[Any, Any]] = None, dataset_idx: Optional[int] = None
    ) -> Any:
        """Trains on data that is in the store already.

        Args:
            params: parameters to use instead of those that were set.
            dataset_idx: the number of the dataset in the store, if it has one.
        """
        if params:
            return self.copy(params).fit_on_parquet(dataset_idx=dataset_idx)
        backend, store = self._check()
        validation = self._values().validation
        check_validation(validation)
        return self._train(backend, store, read_metadata(store, dataset_idx, bool(validation), {}))

    def _fit(self, dataset: DataFrame) -> HorovodModel:
        backend, store = self._check()
        values = self._values()
        wanted = Wanted(
            feature_cols=tuple(values.feature_cols or ()),
            label_cols=tuple(values.label_cols or ()),
            sample_weight_col=values.sample_weight_col,
            validation=values.validation,
            partitions=check_partitions(backend.num_processes(), values.partitions_per_process),
            compress_sparse=values.compress_sparse_cols,
            seed=values.random_seed,
        )
        return self._train(backend, store, prepare(dataset, store, wanted))

    # ------------------------------------------------------------------------- what a framework says

    def _check_model(self, columns: Columns) -> None:
        """Raises ValueError if the parameters do not fit each other or the data."""
        raise NotImplementedError

    def _run(self, backend: Backend, common: Dict[str, Any]) -> Tuple[Any, Any]:
        """Trains on every rank; the history and what the model is made from."""
        raise NotImplementedError

    def _make_model(self, history: Any, trained: Any, run_id: str, dataset: Dataset) -> HorovodModel:
        """The model that `fit` returns."""
        raise NotImplementedError

    def _default_data_module(self) -> Type[DataModule]:
        raise NotImplementedError

    # ------------------------------------------------------------------------------------ the common part

    def _check(self) -> Tuple[Backend, AbstractFilesystemStore]:
        values = self._values()
        if values.backend is not None and values.num_proc is not None:
            raise ValueError('At most one of parameters "backend" and "num_proc" may be specified')
        if values.model is None:
            raise ValueError("Model parameter is required")
        if values.store is None:
            raise ValueError('Parameter "store" is required: where the data is written, see Store.create')
        return values.backend or SparkBackend(values.num_proc, **self._backend_options()), values.store

    def _backend_options(self) -> Dict[str, Any]:
        return {}

    def _train(self, backend: Backend, store: AbstractFilesystemStore, dataset: Dataset) -> HorovodModel:
        self._check_columns(dataset.columns)
        self._check_model(dataset.columns)
        run_id = self._values().run_id or f"{self._PREFIX}_{int(time.time())}"
        remote = store.to_remote(run_id, dataset.idx)
        history, trained = self._run(backend, self._common(remote, dataset))
        return self._make_model(history, trained, run_id, dataset)

    def _check_columns(self, columns: Columns) -> None:
        values = self._values()
        if values.transformation_fn is not None:
            return  # it may add columns
        for what, names in (("Feature", values.feature_cols), ("Label", values.label_cols)):
            missing: List[str] = [name for name in names or () if name not in columns]
            if missing:
                raise ValueError(f"{what} columns {missing} not found in training DataFrame metadata")

    def _common(self, remote: Any, dataset: Dataset) -> Dict[str, Any]:
        """The arguments of a FitSpec: most are parameters by the same name."""
        values = self._values()
        special = {
            "store": remote,
            "dataset": dataset,
            "feature_cols": tuple(values.feature_cols or ()),
            "label_cols": tuple(values.label_cols or ()),
            "val_batch_size": values.val_batch_size or values.batch_size,
            "data_module": values.data_module or self._default_data_module(),
        }
        names = [field.name for field in fields(FitSpec)]
        return {name: special[name] if name in special else getattr(values, name) for name in names}


def check_sizes(
    what: str, names: List[str], columns: Columns, sizes: List[Optional[int]], of_model: str
) -> None:
    """Raises ValueError if columns do not fit the inputs or outputs of a model.

    Args:
        what: "Feature" or "Label".
        sizes: numbers in a row of each input or output; None where it is open.
        of_model: "input" or "output".
    """
    if len(names) != len(sizes):
        raise ValueError(f"{what} column count {len(names)} must equal model {of_model}s count {len(sizes)}")
    for idx, name in enumerate(names):
        size = sizes[idx]
        if size is not None and name in columns and columns[name].size != size:
            raise ValueError(
                f"{what} column '{name}' with size {columns[name].size} must equal that of the model "
                f"{of_model} at index {idx} with size {size}"
            )
