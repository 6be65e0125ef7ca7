# SPDX-License-Identifier: Apache-2.0
"""Keras models, optimizers, losses and metrics as bytes.

A checkpoint is a .keras file, which Keras loads as it is, with two entries more: the optimizer's variables
and what we must know to go on.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from horovod.spark.keras.flavour import Flavour

_VARIABLES, _FACTS = "horovod/optimizer.npz", "horovod/facts.json"


def dump_model(model: Any) -> bytes:
    """A model as a .keras file."""
    with tempfile.TemporaryDirectory(prefix="horovod-keras-") as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        with open(path, "rb") as file:
            return file.read()


def load_model(data: bytes, flavour: Flavour, custom_objects: Optional[Dict[str, Any]] = None) -> Any:
    """The model of a .keras or HDF5 file, not compiled."""
    keras = flavour.load()
    suffix = ".h5" if data.startswith(b"\x89HDF") else ".keras"
    with tempfile.TemporaryDirectory(prefix="horovod-keras-") as folder:
        path = os.path.join(folder, "model" + suffix)
        with open(path, "wb") as file:
            file.write(data)
        # Not safe_mode: the model comes from the user's own program or store, as do pickles.
        return keras.models.load_model(path, custom_objects=custom_objects, compile=False, safe_mode=False)


class Facts(NamedTuple):
    """What a checkpoint holds beside the model."""

    epochs: int
    learning_rate: Optional[float]  # as for one rank; None if a schedule decides
    variables: List[np.ndarray]


def dump_checkpoint(model: Any, facts: Facts) -> bytes:
    """A model with what is needed to go on training."""
    buffer = io.BytesIO(dump_model(model))
    arrays = io.BytesIO()
    np.savez(arrays, *facts.variables)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(_VARIABLES, arrays.getvalue())
        archive.writestr(_FACTS, json.dumps({"epochs": facts.epochs, "learning_rate": facts.learning_rate}))
    return buffer.getvalue()


def facts_of(data: bytes) -> Optional[Facts]:
    """The opposite, as far as we wrote it; None for a file that a callback wrote."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return None
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if _FACTS not in archive.namelist():
            return None
        facts = json.loads(archive.read(_FACTS))
        with np.load(io.BytesIO(archive.read(_VARIABLES))) as arrays:
            variables = [arrays[name] for name in arrays.files]
    return Facts(facts["epochs"], facts["learning_rate"], variables)


# ------------------------------------------------------------------- losses, metrics and optimizers --


class FromConfig(NamedTuple):
    """An object of Keras as its class and configuration: the object itself may hold variables."""

    cls: Any
    config: Dict[str, Any]


def portable(thing: Any) -> Any:
    """Objects of Keras, also in lists and dictionaries, in a form that can be pickled."""
    if isinstance(thing, (list, tuple)) and not hasattr(thing, "_fields"):
        return [portable(one) for one in thing]
    if isinstance(thing, dict):
        return {name: portable(one) for name, one in thing.items()}
    if hasattr(thing, "get_config") and hasattr(thing, "from_config") and not isinstance(thing, type):
        return FromConfig(type(thing), thing.get_config())
    return thing


def restored(thing: Any) -> Any:
    """The opposite of `portable`."""
    if isinstance(thing, FromConfig):
        return thing.cls.from_config(dict(thing.config))
    if isinstance(thing, list):
        return [restored(one) for one in thing]
    if isinstance(thing, dict):
        return {name: restored(one) for name, one in thing.items()}
    return thing


def optimizer_variables(optimizer: Any) -> Tuple[Optional[Any], List[Any]]:
    """The variable of the learning rate (None if a schedule decides), and all others."""
    rate = getattr(optimizer, "_learning_rate", None)
    rate = rate if hasattr(rate, "assign") else None
    found = optimizer.variables
    found = found() if callable(found) else found
    return rate, [one for one in found if one is not rate]
