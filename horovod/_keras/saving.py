# SPDX-License-Identifier: Apache-2.0
"""Loading a saved model so that it goes on training distributed."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

from horovod._keras.settings import Settings


def load_model(
    keras: Any,
    filepath: str,
    custom_optimizers: Optional[Sequence[Any]] = None,
    custom_objects: Optional[Dict[str, Any]] = None,
    compression: Any = None,
) -> Any:
    """Loads with `keras.models.load_model` and wraps the model's optimizer, which keeps its saved state."""
    from horovod._keras import wrap

    objects = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects or None)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        model.optimizer = wrap(optimizer, Settings(compression=compression))
    return model
