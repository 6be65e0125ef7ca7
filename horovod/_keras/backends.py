# SPDX-License-Identifier: Apache-2.0
"""Gradient reduction for each backend that Keras can run on: TensorFlow, PyTorch and JAX.

A reduction is called with lists of gradients and their variables, inside whatever the backend makes of a
training step: a tf.function, an eager PyTorch step, or a function traced by jax.jit.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

from horovod._keras import weight_check
from horovod._keras.settings import Settings
from horovod._keras.variables import read
from horovod.common.constants import Average
from horovod.common.groups import Positions, positions
from horovod.common.process_sets import global_process_set
from horovod.common.weight_watch import WeightWatch

Reduction = Callable[[Sequence[Any], Optional[Sequence[Any]], bool], List[Any]]


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
    """What PyTorch and JAX share: local variables, groups, sizes, scale factors."""

    def __init__(self, settings: Settings, name: str) -> None:
        self.settings = settings
        self.name = name
        self.local = {id(v) for v in settings.local_variables}
        factor = settings.gradient_predivide_factor if settings.op == Average else 1.0
        self.options: Dict[str, Any] = {
            "op": settings.op,
            "prescale_factor": 1.0 / factor,
            "postscale_factor": factor,
            "process_set": settings.process_set,
        }

    def register_local(self, variable: Any) -> None:
        """Keeps the gradient of a variable on this rank."""
        self.local.add(id(variable))

    def is_local(self, variable: Any) -> bool:
        """Whether the gradient of a variable stays on this rank."""
        return id(variable) in self.local

    def __call__(
        self,
        gradients: Sequence[Any],
        variables: Optional[Sequence[Any]] = None,
        use_generic_names: bool = False,
    ) -> List[Any]:
        results, variables = list(gradients), list(variables or ())
        members = self.settings.process_set
        size = members.size() or 1
        if size == 1 or (members is not global_process_set and not members.included()):
            return results
        own = [i for i, v in enumerate(variables) if self.is_local(v)]
        shared = [i for i, g in enumerate(results) if g is not None and i not in own]
        for i in own:
            if results[i] is not None and self.settings.scale_local_gradients:
                results[i] = results[i] / size
        self.look([v for v in variables if not self.is_local(v)])
        named = variables and not use_generic_names
        # Numbered without the local ones, of which each rank may have others.
        paths = [
            str(getattr(variables[i], "path", i)) if named else f"grad_{n}" for n, i in enumerate(shared)
        ]
        groups = positions(self.settings.groups, [id(variables[i]) if variables else i for i in shared], id)
        for i, reduced in zip(shared, self.reduce([results[i] for i in shared], paths, groups)):
            results[i] = reduced
        return results

    def reduce(self, gradients: List[Any], names: List[str], groups: Optional[Positions]) -> List[Any]:
        """Reduces gradients that are all there."""
        raise NotImplementedError

    def look(self, variables: List[Any]) -> None:
        """Looks at weights before they are updated, where they are not just being traced."""


class _Torch(_Generic):
    """Every gradient's (or group's) reduction is started, then all are waited for: the engine fuses them."""

    _watch: Optional[WeightWatch] = None

    def look(self, variables: List[Any]) -> None:
        if self._watch is None and variables:
            self._watch = weight_check.watch(variables, self.settings.process_set)
        if self._watch is not None and not self._watch.over:
            self._watch.look(read(variables))

    def reduce(self, gradients: List[Any], names: List[str], groups: Optional[Positions]) -> List[Any]:
        import horovod.torch as hvd

        compression = self.settings.compression or hvd.Compression.none
        results = [g.to_dense() if g.is_sparse and self.settings.sparse_as_dense else g for g in gradients]
        wires = [f"{self.name}.{name}" for name in names]
        waits: List[Callable[[], None]] = []

        def start(places: List[int]) -> None:
            pairs = [compression.compress(results[i].contiguous()) for i in places]
            tensors = [tensor for tensor, _ in pairs]
            if len(places) == 1:
                handle = hvd.allreduce_async_(tensors[0], name=wires[places[0]], **self.options)
            else:
                handle = hvd.grouped_allreduce_async_(tensors, name=wires[places[0]], **self.options)

            def wait() -> None:
                reduced = hvd.synchronize(handle)
                for i, one, (_, context) in zip(places, [reduced] if len(places) == 1 else reduced, pairs):
                    results[i] = compression.decompress(one, context)

            waits.append(wait)

        def start_sparse(i: int) -> None:
            finish = hvd.sparse_allreduce_async(
                results[i], wires[i], self.settings.op, self.settings.process_set
            )
            waits.append(lambda: results.__setitem__(i, finish()))

        for group in groups or [(i,) for i in range(len(results))]:
            dense = [i for i in group if not results[i].is_sparse]
            if dense:
                start(dense)
            for i in group:
                if results[i].is_sparse:
                    start_sparse(i)
        for wait in waits:
            wait()
        return results


class _Jax(_Generic):
    """One grouped call, or one for each of the user's groups, traceable by jax.jit.

    Gradients of JAX are dense arrays, so there is nothing for `sparse_as_dense` to do.
    """

    def reduce(self, gradients: List[Any], names: List[str], groups: Optional[Positions]) -> List[Any]:
        import horovod.jax as hvd

        options = dict(self.options)
        if self.settings.compression is not None:
            options["compression"] = self.settings.compression
        results = list(gradients)
        for number, group in enumerate(groups or [tuple(range(len(gradients)))]):
            name = self.name if groups is None else f"{self.name}.group{number}"
            reduced = hvd.grouped_allreduce([gradients[i] for i in group], name=name, **options)
            for i, one in zip(group, reduced):
                results[i] = one
        return results


_MAKERS: Dict[str, Callable[[Settings, str], Reduction]] = {
    "tensorflow": _tensorflow,
    "torch": _Torch,
    "jax": _Jax,
}
