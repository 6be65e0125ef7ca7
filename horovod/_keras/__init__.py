# SPDX-License-Identifier: Apache-2.0
"""What horovod.keras and horovod.tensorflow.keras share: Keras 3 on any backend, and Keras 2."""

from __future__ import annotations

from typing import Any, Optional

from horovod._keras.settings import Settings


def wrap(optimizer: Any, settings: Settings, name: Optional[str] = None) -> Any:
    """The optimizer, reducing its gradients as the settings say."""
    if hasattr(optimizer, "stateless_apply"):
        from horovod._keras import optimizer3

        return optimizer3.wrap(optimizer, settings, name)
    if hasattr(optimizer, "apply_gradients"):
        from horovod._keras import optimizer2

        return optimizer2.wrap(optimizer, settings, name)
    raise TypeError(
        f"DistributedOptimizer takes an optimizer of Keras 2 or 3, not {optimizer!r}. Make it first, e.g. "
        "keras.optimizers.Adam(0.001 * hvd.size())."
    )
