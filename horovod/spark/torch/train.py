# SPDX-License-Identifier: Apache-2.0
"""What every rank of a TorchEstimator runs."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from horovod.spark.common.fit_spec import FitSpec
from horovod.spark.common.gpu import gpu_of_rank
from horovod.spark.torch import forms
from horovod.spark.torch.losses import Loss, one_for_each
from horovod.spark.torch.metrics import measure

History = List[Dict[str, Any]]


@dataclass(frozen=True)
class TorchSpec(FitSpec):
    """What a rank must know beside the common part."""

    model_and_optimizer: bytes = b""  # in one pickle: the optimizer's parameters are those of the model
    losses: Any = None
    loss_constructors: Any = None
    input_shapes: forms.Shapes = None
    train_minibatch_fn: Optional[Callable[..., Any]] = None


def train(spec: TorchSpec) -> Optional[Tuple[History, bytes]]:
    """Trains; rank 0 returns the history and the state of model and optimizer."""
    import horovod.torch as hvd

    hvd.init()
    if spec.random_seed is not None:
        torch.manual_seed(spec.random_seed)
    device = _device(spec)
    if len(set(hvd.allgather_object(device.type))) > 1:
        raise RuntimeError("All ranks don't have same device type!")
    run = _Run(spec, device)
    with spec.open_data(hvd.rank(), hvd.size(), lambda batch: batch) as data:
        history = run.epochs(data)
    return (history, run.state()) if hvd.rank() == 0 else None


def _device(spec: FitSpec) -> torch.device:
    if not (spec.use_gpu and torch.cuda.is_available()):
        return torch.device("cpu")
    index = gpu_of_rank()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


class PlainSteps:
    """Steps of gradient descent, each after some backward passes; `train_minibatch_fn` may take its place.

    Args:
        passes: backward_passes_per_step.
        batches: of the epoch: the last one is followed by a step in any case.
    """

    def __init__(self, passes: int, batches: int) -> None:
        self._passes, self._batches = passes, batches
        self._done = 0

    def __call__(
        self,
        model: Any,
        optimizer: Any,
        transform_outputs: Callable[..., Any],
        loss_fn: Loss,
        inputs: List[Any],
        labels: List[Any],
        sample_weights: Any,
    ) -> Tuple[Any, torch.Tensor]:
        if self._done % self._passes == 0:
            optimizer.zero_grad()
        outputs, labels = transform_outputs(model(*inputs), labels)
        loss = loss_fn(outputs, labels, sample_weights)
        loss.backward()
        self._done += 1
        if self._done % self._passes == 0 or self._done == self._batches:
            optimizer.step()
        return outputs, loss


class _Run:
    """Model, optimizer and loss of a rank while it trains."""

    def __init__(self, spec: TorchSpec, device: torch.device) -> None:
        import cloudpickle

        import horovod.torch as hvd

        self._hvd = hvd
        self._spec = spec
        self._device = device
        self._model, plain = cloudpickle.loads(spec.model_and_optimizer)
        self._model.to(device)
        _move_state(plain, device)
        count = len(spec.label_cols)
        if spec.loss_constructors is not None:
            functions = [make() for make in one_for_each(spec.loss_constructors, count)]
        else:
            functions = one_for_each(spec.losses, count)
        functions = [f.to(device) if isinstance(f, torch.nn.Module) else f for f in functions]
        self._loss = Loss(functions, spec.loss_weights)
        self._dtypes = forms.feature_dtypes(self._model)
        self._first_epoch = self._resume(plain)
        for group in plain.param_groups:
            group["lr"] = group["lr"] * hvd.size()
        self._optimizer = hvd.DistributedOptimizer(
            plain,
            named_parameters=self._model.named_parameters(),
            compression=spec.gradient_compression or hvd.Compression.none,
            backward_passes_per_step=spec.backward_passes_per_step,
        )
        hvd.broadcast_parameters(self._model.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(self._optimizer, root_rank=0)

    def epochs(self, data: Any) -> History:
        """Trains for all epochs; what was measured in each."""
        spec, history = self._spec, []
        train_data = data.train_data()
        for epoch in range(self._first_epoch, self._first_epoch + self._missing()):
            logs: Dict[str, Any] = {"epoch": epoch, "train": self._train_epoch(train_data)}
            if spec.has_validation:
                logs["validation"] = self._validate(data.val_data())
            history.append(logs)
            for callback in spec.callbacks:
                callback(epoch, logs, self._model, self._optimizer)
            if self._hvd.rank() == 0:
                if spec.verbose:
                    print(_text(logs), flush=True)
                if spec.store.checkpoint_path is not None:
                    spec.store.store.write(spec.store.checkpoint_path, self.state(epoch + 1))
        return history

    def state(self, epochs: Optional[int] = None) -> bytes:
        """Model and optimizer as bytes, the learning rate as it would be for one rank."""
        optimizer = self._optimizer.state_dict()
        groups = [dict(group, lr=group["lr"] / self._hvd.size()) for group in optimizer["param_groups"]]
        buffer = io.BytesIO()
        state = {"model": self._model.state_dict(), "optimizer": dict(optimizer, param_groups=groups)}
        torch.save(dict(state, epochs=epochs), buffer)
        return buffer.getvalue()

    # ----------------------------------------------------------------------------------------- private

    def _resume(self, optimizer: Any) -> int:
        """Takes up the run's checkpoint, if there is one; the first epoch to train."""
        spec, path, epochs = self._spec, self._spec.store.checkpoint_path, 0
        if self._hvd.rank() == 0 and path is not None and spec.store.store.exists(path):
            if spec.verbose:
                print(f"Resuming training from last checkpoint: {path}", flush=True)
            state = torch.load(io.BytesIO(spec.store.store.read(path)), map_location=self._device)
            self._model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            epochs = state.get("epochs") or 0
        found: int = self._hvd.broadcast_object(epochs, root_rank=0)
        return found

    def _missing(self) -> int:
        """Epochs to train: what an interrupted run lacks, or as many again after a complete one."""
        left = self._spec.epochs - self._first_epoch
        return left if left > 0 else self._spec.epochs

    def _train_epoch(self, batches: Any) -> Dict[str, float]:
        self._model.train()
        spec = self._spec
        step = spec.train_minibatch_fn or PlainSteps(spec.backward_passes_per_step, len(batches))
        sums = _Sums(self._device)
        for batch in batches:
            inputs, labels, weights = self._parts(batch)
            outputs, loss = step(
                self._model, self._optimizer, self._outputs, self._loss, inputs, labels, weights
            )
            sums.add(self._measured(forms.outputs_of(outputs), labels, loss), len(inputs[0]))
        return sums.means(self._hvd)

    def _validate(self, batches: Any) -> Dict[str, float]:
        self._model.eval()
        sums = _Sums(self._device)
        with torch.no_grad():
            for batch in batches:
                inputs, labels, weights = self._parts(batch)
                outputs, labels = self._outputs(self._model(*inputs), labels)
                measured = self._measured(outputs, labels, self._loss(outputs, labels, weights))
                sums.add(measured, len(inputs[0]))
        return sums.means(self._hvd)

    def _parts(self, batch: Dict[str, Any]) -> Tuple[List[Any], List[Any], Any]:
        spec = self._spec

        def on_device(names: Sequence[str]) -> List[Any]:
            return [torch.as_tensor(batch[name]).to(self._device, non_blocking=True) for name in names]

        inputs = forms.inputs_of(on_device(spec.feature_cols), self._dtypes, spec.input_shapes)
        labels = forms.labels_of(on_device(spec.label_cols), self._dtypes["f"], spec.label_shapes)
        weights = on_device([spec.sample_weight_col])[0] if spec.sample_weight_col else None
        return inputs, labels, weights

    def _outputs(self, result: Any, labels: List[Any]) -> Tuple[List[Any], List[Any]]:
        outputs = forms.outputs_of(result)
        return outputs, forms.matched(outputs, labels)

    def _measured(self, outputs: List[Any], labels: List[Any], loss: Any) -> Dict[str, Any]:
        return {"loss": loss.detach(), **measure(self._spec.metrics, self._spec.label_cols, outputs, labels)}


class _Sums:
    """Means over the rows of all batches of all ranks; nothing is fetched from a device before the end."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._totals: Dict[str, torch.Tensor] = {}
        self._rows = 0

    def add(self, values: Dict[str, Any], rows: int) -> None:
        self._rows += rows
        for name, value in values.items():
            value = torch.as_tensor(value, dtype=torch.float64, device=self._device)
            self._totals[name] = self._totals.get(name, 0) + value * rows

    def means(self, hvd: Any) -> Dict[str, float]:
        names = list(self._totals)
        rows = torch.tensor(float(self._rows), dtype=torch.float64, device=self._device)
        total = hvd.allreduce(torch.stack([*self._totals.values(), rows]), op=hvd.Sum).tolist()
        return {name: value / total[-1] for name, value in zip(names, total)}


def _move_state(optimizer: Any, device: torch.device) -> None:
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim():
                state[name] = value.to(device)


def _text(logs: Dict[str, Any]) -> str:
    """E.g. "epoch 3: train loss 0.12, validation loss 0.15"."""
    parts = [
        f"{part} {name} {value:.6g}"
        for part in ("train", "validation")
        for name, value in logs.get(part, {}).items()
    ]
    return f"epoch {logs['epoch'] + 1}: " + ", ".join(parts)
