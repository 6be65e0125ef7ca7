# SPDX-License-Identifier: Apache-2.0
"""What every rank of the Lightning estimator runs."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

import lightning.pytorch as pl
import torch

from horovod.lightning import HorovodStrategy
from horovod.spark.common.fit_spec import FitSpec
from horovod.spark.common.gpu import gpu_of_rank
from horovod.spark.torch import forms

History = List[Dict[str, Any]]


@dataclass(frozen=True)
class LightningSpec(FitSpec):
    """What a rank must know beside the common part."""

    # Makes the LightningModule from the model and the optimizer that were given, in one pickle.
    model_and_optimizer: bytes = b""
    make_module: Optional[Callable[[Any, Any], pl.LightningModule]] = None
    trainer_args: Optional[Dict[str, Any]] = None
    terminate_on_nan: bool = False
    train_prefetch: int = 0


def train(spec: LightningSpec) -> Optional[Tuple[History, bytes]]:
    """Trains; rank 0 returns the history and the weights."""
    import cloudpickle

    import horovod.torch as hvd

    hvd.init()
    if spec.random_seed is not None:
        pl.seed_everything(spec.random_seed, verbose=False)
    assert spec.make_module is not None
    module = spec.make_module(*cloudpickle.loads(spec.model_and_optimizer))
    history = _History()
    with spec.store.get_local_output_dir() as folder:
        checkpoint, epochs = _fetch_checkpoint(spec, folder)
        callbacks = [*spec.callbacks, history, _Upload(spec, folder)]
        if spec.terminate_on_nan:
            callbacks.append(_StopAtNan())
        left = spec.epochs - epochs
        trainer = pl.Trainer(
            **{
                **_accelerator(spec),
                "strategy": HorovodStrategy(
                    scale_learning_rate=True,
                    compression=spec.gradient_compression or hvd.Compression.none,
                    backward_passes_per_step=spec.backward_passes_per_step,
                ),
                "max_epochs": epochs + (left if left > 0 else spec.epochs),
                "callbacks": callbacks,
                "default_root_dir": folder,
                "enable_checkpointing": False,
                "enable_progress_bar": bool(spec.verbose) and hvd.rank() == 0,
                "enable_model_summary": bool(spec.verbose),
                "num_sanity_val_steps": 0,
                "use_distributed_sampler": False,  # the reader gives each rank its part
                **(spec.trainer_args or {}),
            }
        )
        more = {"prefetch": spec.train_prefetch}
        with spec.open_data(hvd.rank(), hvd.size(), _Cast(module), **more) as data:
            val = {"val_dataloaders": data.val_data()} if spec.has_validation else {}
            trainer.fit(module, data.train_data(), ckpt_path=checkpoint, weights_only=False, **val)
    return (history.epochs, _weights(module)) if hvd.rank() == 0 else None


class _Cast:
    """Floating-point columns in the type of the module's parameters."""

    def __init__(self, module: pl.LightningModule) -> None:
        self._type = forms.numpy_type(forms.feature_dtypes(module)["f"])

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        return {
            name: array.astype(self._type, copy=False) if array.dtype.kind == "f" else array
            for name, array in batch.items()
        }


class _History(pl.Callback):
    """What was logged in each epoch, as the mean over the ranks."""

    def __init__(self) -> None:
        self.epochs: History = []

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        import horovod.torch as hvd

        mine = {name: float(value) for name, value in trainer.callback_metrics.items()}
        everybody = hvd.allgather_object(mine)
        names = [name for name in everybody[0] if all(name in one for one in everybody)]
        means = {name: sum(one[name] for one in everybody) / len(everybody) for name in names}
        self.epochs.append({"epoch": trainer.current_epoch, **means})


class _Upload(pl.Callback):
    """Brings a checkpoint of each epoch into the store."""

    def __init__(self, spec: LightningSpec, folder: str) -> None:
        self._store = spec.store
        self._file = os.path.join(folder, "epoch.ckpt")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self._store.checkpoint_path is None:
            return
        trainer.save_checkpoint(self._file)  # a matter of all ranks; rank 0 writes
        if trainer.is_global_zero:
            self._store.store.copy(self._file, self._store.checkpoint_path)


class _StopAtNan(pl.Callback):
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        if loss is not None and not torch.isfinite(loss).all():
            raise ValueError(
                f"the loss of batch {batch_idx} in epoch {trainer.current_epoch} is {loss} on rank "
                f"{trainer.global_rank}, and terminate_on_nan is set"
            )


def _accelerator(spec: LightningSpec) -> Dict[str, Any]:
    if spec.use_gpu and torch.cuda.is_available():
        index = gpu_of_rank()
        torch.cuda.set_device(index)
        return {"accelerator": "gpu", "devices": [index]}
    return {"accelerator": "cpu", "devices": 1}


def _fetch_checkpoint(spec: LightningSpec, folder: str) -> Tuple[Optional[str], int]:
    """The run's checkpoint as a local file on every rank, and the epochs that it has seen."""
    import horovod.torch as hvd

    path, data = spec.store.checkpoint_path, None
    if hvd.rank() == 0 and path is not None and spec.store.store.exists(path):
        data = spec.store.store.read(path)
        if spec.verbose:
            print(f"Resuming training from last checkpoint: {path}", flush=True)
    data = hvd.broadcast_object(data, root_rank=0)
    if data is None:
        return None, 0
    file = os.path.join(folder, "resumed.ckpt")
    with open(file, "wb") as target:
        target.write(data)
    state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
    return file, int(state["epoch"]) + 1


def _weights(module: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save({name: value.cpu() for name, value in module.state_dict().items()}, buffer)
    return buffer.getvalue()
