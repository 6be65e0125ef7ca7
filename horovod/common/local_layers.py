# SPDX-License-Identifier: Apache-2.0
"""The `local_layers` argument of Keras optimizers and gradient tapes."""

from __future__ import annotations

from typing import Any, Tuple


def weights_of(layers: Any) -> Tuple[Any, ...]:
    """The trainable weights of a layer or several; () for None. No Keras is imported."""
    if layers is None:
        return ()
    some = list(layers) if isinstance(layers, (list, tuple, set)) else [layers]
    for layer in some:
        if not any(c.__name__ == "Layer" and "keras" in c.__module__ for c in type(layer).__mro__):
            raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return tuple(weight for layer in some for weight in layer.trainable_weights)
