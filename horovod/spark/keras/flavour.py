# SPDX-License-Identifier: Apache-2.0
"""Which Keras a model is made with: Keras 3 on one of its backends, or Keras 2 (tf_keras)."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from typing import Any, Dict

_PACKAGES = ("keras", "tf_keras")


@dataclass(frozen=True)
class Flavour:
    """A Keras, such that another process can load the same."""

    package: str
    backend: str
    floatx: str

    @staticmethod
    def of(model: Any) -> Flavour:
        """The Keras of a model. Raises ValueError if it is none."""
        roots = [
            base.__module__.partition(".")[0] for base in type(model).__mro__ if base.__name__ == "Model"
        ]
        package = next((root for root in roots if root in _PACKAGES), None)
        if package is None:
            raise ValueError("model has to be an instance of tensorflow.keras.Model")
        keras = importlib.import_module(package)
        backend = keras.config.backend() if package == "keras" else "tensorflow"
        return Flavour(package, backend, keras.backend.floatx())

    @property
    def env(self) -> Dict[str, str]:
        """Variables that must be set where this Keras is imported."""
        return {"KERAS_BACKEND": self.backend}

    def load(self) -> Any:
        """The package, with the same settings."""
        loaded = sys.modules.get(self.package)
        if loaded is None:
            os.environ.update(self.env)
            loaded = importlib.import_module(self.package)
        elif self.package == "keras" and loaded.config.backend() != self.backend:
            raise RuntimeError(
                f"the model was made with Keras on {self.backend}, but this process runs Keras on "
                f"{loaded.config.backend()}: set KERAS_BACKEND={self.backend} for it"
            )
        loaded.backend.set_floatx(self.floatx)
        return loaded
