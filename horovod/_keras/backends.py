# SPDX-License-Identifier: Apache-2.0
"""Gradient reduction for each backend that Keras can run on: TensorFlow, PyTorch and JAX.

A reduction is called with lists of gradients and their variables, inside whatever the backend makes of a
training step: a tf.function, an eager PyTorch step, or a function traced by jax.jit.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence

from horovod._keras.settings import Settings
from horovod.common.constants import Average
from horovod.common.process_sets import global_process_set

Reduction = Callable[[Sequence[Any], Sequence[Any]], List[Any]]


def keras_backend() -> str:
    """The backend of the installed Keras 3."""
    import keras

    return str(keras.config.backend())


def reduction(settings: Settings, backend: str, name: str) -> Reduction:
    """The function that reduces gradients on a backend."""
    try:
        make = _MAKERS[backend]
    except KeyError:
        raise NotImplementedError(
            f"horovod.keras cannot reduce gradients on Keras' {backend} backend; it can on "
            f"{', '.join(sorted(_MAKERS))}. Set KERAS_BACKEND to one of them."
        ) from None
    return make(settings, name)


def _tensorflow(settings: Settings, name: str) -> Reduction:
    from horovod.tensorflow._reduction import GradientReduction
    from horovod.tensorflow.compression import Compression

    reduce = GradientReduction(
        name,
        compression=settings.compression or Compression.none,
        sparse_as_dense=settings.sparse_as_dense,
        op=settings.op,
        gradient_predivide_factor=settings.gradient_predivide_factor,
        groups=settings.groups,
        process_set=settings.process_set,
        scale_local_gradients=settings.scale_local_gradients,
    )
    for variable in settings.local_variables:
        reduce.register_local(variable)
    return reduce


class _Generic:
    """What PyTorch and JAX share: local variables, sizes, scale factors."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.settings = settings
        self.name = name
        self.local = {id(v) for v in settings.local_variables}
        factor = settings.gradient_predivide_factor if settings.op == Average else 1.0
        self.scales: Dict[str, Any] = {"prescale_factor": 1.0 / factor, "postscale_factor": factor}

    def register_local(self, variable: Any) -> None:
        """Keeps the gradient of a variable on this rank."""
        self.local.add(id(variable))

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> List[Any]:
        results = list(gradients)
        members = self.settings.process_set
        size = members.size() or 1
        if size == 1 or (members is not global_process_set and not members.included()):
            return results
        own = [i for i, v in enumerate(variables) if id(v) in self.local]
        shared = [i for i, g in enumerate(results) if g is not None and i not in own]
        for i in own:
            if results[i] is not None and self.settings.scale_local_gradients:
                results[i] = results[i] / size
        names = [str(getattr(variables[i], "path", i)) for i in shared]
        for i, reduced in zip(shared, self.reduce([results[i] for i in shared], names)):
            results[i] = reduced
        return results

    def reduce(self, gradients: List[Any], names: List[str]) -> List[Any]:
        """Reduces gradients that are all there."""
        raise NotImplementedError


class _Torch(_Generic):
    """Every gradient's reduction is started, then all are waited for: the engine fuses them."""

    def reduce(self, gradients: List[Any], names: List[str]) -> List[Any]:
        import horovod.torch as hvd

        compression = self.settings.compression or hvd.Compression.none
        pairs = [compression.compress(g.contiguous()) for g in gradients]
        handles = [
            hvd.allreduce_async_(
                tensor,
                name=f"{self.name}.{name}",
                op=self.settings.op,
                process_set=self.settings.process_set,
                **self.scales,
            )
            for (tensor, _), name in zip(pairs, names)
        ]
        return [
            compression.decompress(hvd.synchronize(handle), context)
            for handle, (_, context) in zip(handles, pairs)
        ]


class _Jax(_Generic):
    """One grouped call, traceable by jax.jit."""

    def reduce(self, gradients: List[Any], names: List[str]) -> List[Any]:
        import horovod.jax as hvd

        options: Dict[str, Any] = dict(self.scales)
        if self.settings.compression is not None:
            options["compression"] = self.settings.compression
        return list(
            hvd.grouped_allreduce(
                gradients,
                name=self.name,
                op=self.settings.op,
                process_set=self.settings.process_set,
                **options,
            )
        )


_MAKERS: Dict[str, Callable[[Settings, str], Reduction]] = {
    "tensorflow": _tensorflow,
    "torch": _Torch,
    "jax": _Jax,
}
