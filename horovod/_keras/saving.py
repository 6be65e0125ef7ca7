# SPDX-License-Identifier: Apache-2.0
"""Loading a saved model so that it goes on training distributed."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

from horovod._keras.settings import Settings


class Saving:
    """`load_model` of a Keras front end, over the `load_model` of its Keras."""

    def __init__(self, keras: Any) -> None:
        self._keras = keras

    def load_model(
        self,
        filepath: str,
        custom_optimizers: Optional[Sequence[Any]] = None,
        custom_objects: Optional[Dict[str, Any]] = None,
        compression: Any = None,
        legacy_opts: bool = False,
    ) -> Any:
        """Loads a saved model with its optimizer wrapped as by `DistributedOptimizer`, its state kept.

        Args:
            filepath: as in keras.models.load_model.
            custom_optimizers: optimizer classes that Keras does not know.
            custom_objects: further names for loading.
            compression: as in `DistributedOptimizer`.
            legacy_opts: accepted for compatibility; legacy optimizers are recognised.
        """
        from horovod._keras import wrap

        objects = {cls.__name__: cls for cls in custom_optimizers or ()}
        objects.update(custom_objects or {})
        model = self._keras.models.load_model(filepath, custom_objects=objects or None)
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None:
            model.optimizer = wrap(optimizer, Settings(compression=compression))
        return model
