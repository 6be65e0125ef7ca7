# SPDX-License-Identifier: Apache-2.0
"""The `local_layers` argument of Keras optimizers and gradient tapes."""

from __future__ import annotations

from typing import Any, Iterable, Tuple


def weights_of(layers: Any) -> Tuple[Any, ...]:
    """The trainable weights of a layer or several; () for None. No Keras is imported."""
    if layers is None:
        return ()
    some = [layers] if _is_layer(layers) or not isinstance(layers, Iterable) else list(layers)
    if not all(_is_layer(layer) for layer in some):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return tuple(weight for layer in some for weight in layer.trainable_weights)


def _is_layer(one: Any) -> bool:
    return any(c.__name__ == "Layer" and "keras" in c.__module__ for c in type(one).__mro__)
