# SPDX-License-Identifier: Apache-2.0
"""What every callback is built from: behaviour of ours, and the Callback class of the user's Keras."""

from __future__ import annotations

from typing import Any, Dict, Optional

Logs = Optional[Dict[str, Any]]


def with_base(behaviour: type, base: type, module: str) -> Any:
    """A behaviour as a callback of one Keras, known by its name in that front end's module.

    Args:
        behaviour: a class of this package, e.g. MetricAverageCallback.
        base: keras.callbacks.Callback, or a class derived from it.
        module: where users and pickle find the result.
    """
    return type(behaviour.__name__, (behaviour, base), {"__doc__": behaviour.__doc__, "__module__": module})


class AnyKeras:
    """Lets a callback of Keras 3 run in the `fit` of Keras 2, which asks more of its callbacks."""

    _supports_tf_logs = False

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False
