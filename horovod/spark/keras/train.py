# SPDX-License-Identifier: Apache-2.0
"""What every rank of a KerasEstimator runs. Keras is imported when the GPU and the backend are chosen."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from horovod.spark.common.fit_spec import FitSpec
from horovod.spark.common.gpu import show_gpu
from horovod.spark.keras import serialization
from horovod.spark.keras.flavour import Flavour
from horovod.spark.keras.forms import Examples, Inputs
from horovod.spark.keras.serialization import Facts, restored

History = Dict[str, List[float]]


@dataclass(frozen=True)
class KerasSpec(FitSpec):
    """What a rank must know beside the common part."""

    model: bytes = b""
    custom_objects: Optional[Dict[str, Any]] = None
    optimizer: Any = None
    loss: Any = None
    checkpoint_callback: Any = None
    tf_prefetch: int = 0


def train(pickled: bytes, flavour: Flavour, use_gpu: bool) -> Optional[Tuple[History, bytes]]:
    """Trains; rank 0 returns the history and the checkpoint of the model.

    Args:
        pickled: a KerasSpec; loading it may import Keras.
    """
    import cloudpickle

    from horovod.common.basics import basics

    basics.init()
    show_gpu(use_gpu)
    keras = flavour.load()
    spec: KerasSpec = cloudpickle.loads(pickled)
    if spec.random_seed is not None:
        keras.utils.set_random_seed(spec.random_seed)
    return _Run(spec, flavour, keras).fit()


class _Run:
    """A rank's model while it is trained."""

    def __init__(self, spec: KerasSpec, flavour: Flavour, keras: Any) -> None:
        import horovod.keras as hvd
        from horovod.common import objects

        self._hvd = hvd
        self._spec = spec
        self._flavour = flavour
        self._keras = keras
        path = spec.store.checkpoint_path
        saved: Optional[bytes] = None
        if hvd.rank() == 0 and path is not None and spec.store.store.exists(path):
            saved = spec.store.store.read(path)
            if spec.verbose:
                print(f"Resuming training from last checkpoint: {path}", flush=True)
        # The same model on all ranks: the names of its layers are in the names of the collectives.
        saved = objects.broadcast_object(saved, root_rank=0)
        facts = serialization.facts_of(saved) if saved is not None else None
        self._first_epoch = facts.epochs if facts is not None else 0
        with keras.utils.custom_object_scope(spec.custom_objects or {}):
            self._model = serialization.load_model(saved or spec.model, flavour, spec.custom_objects)
            self._compile(facts)

    def fit(self) -> Optional[Tuple[History, bytes]]:
        """Trains for the epochs that are missing."""
        spec, hvd = self._spec, self._hvd
        form = Examples(
            Inputs(self._model, self._flavour.floatx),
            spec.feature_cols,
            spec.label_cols,
            spec.sample_weight_col,
            spec.label_shapes,
            self._flavour.floatx,
        )
        more = {"backend": self._flavour.backend, "tf_prefetch": spec.tf_prefetch}
        left = spec.epochs - self._first_epoch
        # What an interrupted run lacks, or as many again after a complete one.
        last = self._first_epoch + (left if left > 0 else spec.epochs)
        with spec.open_data(hvd.rank(), hvd.size(), form, **more) as data:
            with spec.store.get_local_output_dir() as folder:
                callbacks, result = self._callbacks(folder)
                validation = {}
                if spec.has_validation:
                    validation = {
                        "validation_data": data.val_data(),
                        "validation_steps": data.steps_per_epoch_val,
                    }
                history = self._model.fit(
                    data.train_data(),
                    steps_per_epoch=data.steps_per_epoch_train,
                    epochs=last,
                    initial_epoch=self._first_epoch,
                    shuffle=False,  # the reader has done so
                    verbose=spec.verbose if hvd.rank() == 0 else 0,
                    callbacks=callbacks,
                    **validation,
                )
                if hvd.rank() != 0:
                    return None
                logs = {name: [float(one) for one in values] for name, values in history.history.items()}
                return logs, result(last)

    # ----------------------------------------------------------------------------------------- private

    def _compile(self, facts: Optional[Facts]) -> None:
        spec, hvd = self._spec, self._hvd
        optimizer = self._keras.optimizers.get(restored(spec.optimizer))
        rate, _ = serialization.optimizer_variables(optimizer)
        self._rate_of_one = float(rate.numpy()) if rate is not None else None
        if facts is not None and facts.learning_rate is not None and rate is not None:
            self._rate_of_one = facts.learning_rate
        if rate is not None and self._rate_of_one is not None:
            rate.assign(self._rate_of_one * hvd.size())
        if facts is not None:
            restore_variables(optimizer, self._model, facts)
        wrapped = hvd.DistributedOptimizer(
            optimizer,
            compression=spec.gradient_compression,
            backward_passes_per_step=spec.backward_passes_per_step,
        )
        self._model.compile(
            optimizer=wrapped,
            loss=restored(spec.loss),
            loss_weights=spec.loss_weights,
            **metric_arguments(restored(spec.metrics), spec.sample_weight_col is not None),
        )

    def _callbacks(self, folder: str) -> Tuple[List[Any], Any]:
        """The callbacks of this rank, and a function that returns the trained model's checkpoint."""
        spec, hvd = self._spec, self._hvd
        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            *spec.callbacks,
        ]
        if hvd.rank() != 0:
            return callbacks, None
        own = spec.checkpoint_callback
        weights_only = getattr(own, "save_weights_only", False)
        file = os.path.join(folder, "checkpoint.weights.h5" if weights_only else "checkpoint.keras")
        if own is not None:
            own.filepath = file
            callbacks.append(own)
        upload = _UploadCallback(self, file if own is not None else None, folder)
        if spec.store.saving_runs:
            tensorboard = self._tensorboard(os.path.join(folder, spec.store.logs_subdir))
            callbacks += [*tensorboard, upload.for_keras(self._keras)]
        return callbacks, upload.current

    def _tensorboard(self, folder: str) -> List[Any]:
        try:
            import tensorboard  # noqa: F401
            import tensorflow  # noqa: F401
        except ImportError:
            return []
        return [self._keras.callbacks.TensorBoard(folder)]

    def checkpoint(self, epochs: int, weights: Optional[str] = None) -> bytes:
        """The model as it is now, or with the weights of a file."""
        model = self._model
        if weights is not None:
            # In a copy: the model goes on from where it is, as does its optimizer, which is in the file, too.
            with self._keras.utils.custom_object_scope(self._spec.custom_objects or {}):
                whole = serialization.dump_model(model)
                model = serialization.load_model(whole, self._flavour, self._spec.custom_objects)
            model.load_weights(weights)
        rate, others = serialization.optimizer_variables(self._model.optimizer)
        now = float(rate.numpy()) / self._hvd.size() if rate is not None else None
        return serialization.dump_checkpoint(model, Facts(epochs, now, [one.numpy() for one in others]))


class _UploadCallback:
    """Brings the checkpoint and the logs of an epoch into the store."""

    def __init__(self, run: _Run, file: Optional[str], folder: str) -> None:
        self._run = run
        self._file = file  # what the user's own callback writes
        self._folder = folder

    def current(self, epochs: int) -> bytes:
        """The checkpoint to keep: that of the user's callback if it wrote one, else the model as it is."""
        if self._file is not None and os.path.exists(self._file):
            if self._file.endswith(".weights.h5"):
                return self._run.checkpoint(epochs, self._file)
            with open(self._file, "rb") as file:
                return file.read()
        return self._run.checkpoint(epochs)

    def for_keras(self, keras: Any) -> Any:
        """The callback."""
        store = self._run._spec.store

        def upload(epoch: int, logs: Any = None) -> None:
            store.store.write(store.checkpoint_path or "", self.current(epoch + 1))
            logs_folder = os.path.join(self._folder, store.logs_subdir)
            if os.path.isdir(logs_folder) and store.logs_path is not None:
                store.store.copy(logs_folder, store.logs_path, recursive=True)

        return keras.callbacks.LambdaCallback(on_epoch_end=upload)


def restore_variables(optimizer: Any, model: Any, facts: Facts) -> None:
    """Gives an optimizer the variables it had."""
    optimizer.build(model.trainable_variables)
    _, others = serialization.optimizer_variables(optimizer)
    if [tuple(one.shape) for one in others] == [one.shape for one in facts.variables]:
        for variable, value in zip(others, facts.variables):
            variable.assign(value)


def metric_arguments(metrics: Any, weighted: bool) -> Dict[str, Any]:
    """Metrics as arguments of compile; with sample weights they are weighted, too."""
    return {"weighted_metrics" if weighted else "metrics": metrics or None}
