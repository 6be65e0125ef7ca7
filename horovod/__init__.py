# SPDX-License-Identifier: Apache-2.0
"""Horovod: distributed training for PyTorch, TensorFlow, Keras, JAX, MXNet and NumPy.

Import the front end of your framework, for example ``import horovod.torch as hvd``. Importing this package
alone loads no framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horovod.version import __version__

if TYPE_CHECKING:
    from horovod.runner import run

__all__ = ["__version__", "run"]


def __getattr__(name: str) -> Any:
    if name == "run":  # the launcher is only loaded by those who launch
        from horovod.runner import run

        return run
    raise AttributeError(f"module 'horovod' has no attribute {name!r}")
