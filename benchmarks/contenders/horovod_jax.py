# SPDX-License-Identifier: Apache-2.0
"""horovod.jax in a jitted program over a donated argument, and what remains without a custom call."""

from __future__ import annotations

from typing import Any, Callable

from benchmarks.contenders.horovod_numpy import InPlace


class Jitted(InPlace):
    """A training step reduces its gradients in place: so does this."""

    def __init__(self) -> None:
        import jax

        import horovod.jax as hvd

        self.jax = jax
        self.join(hvd)
        self._step: Callable[[Any], Any] = jax.jit(self.program, donate_argnums=0)

    def program(self, x: Any) -> Any:
        """What is compiled."""
        return self.hvd.allreduce(x, op=self.hvd.Sum, name="bench")

    def buffer(self, count: int) -> Any:
        return [self.jax.numpy.ones(count, self.jax.numpy.float32)]  # in a list, to be replaced by its result

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        data[0] = self._step(data[0])
        return data[0].block_until_ready()


class Callback(Jitted):
    """jax copies the operand to a host function and the result back."""

    def program(self, x: Any) -> Any:
        import numpy as np
        from jax.experimental import io_callback

        import horovod.numpy as hvd_numpy

        def reduce(array: Any) -> Any:
            return hvd_numpy.allreduce(np.asarray(array), op=hvd_numpy.Sum, name="callback")

        return io_callback(reduce, self.jax.ShapeDtypeStruct(x.shape, x.dtype), x, ordered=True)
