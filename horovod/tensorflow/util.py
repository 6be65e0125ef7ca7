# SPDX-License-Identifier: Apache-2.0
"""Small helpers about TensorFlow's modes and variables."""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, Iterable, List, Optional, TypeVar, cast

import tensorflow as tf

from horovod.common.util import _cache as _cache

_Function = TypeVar("_Function", bound=Callable[..., Any])


def without_autograph(function: _Function) -> _Function:
    """Keeps AutoGraph from rewriting a function of ours, which takes longer than the rest of tracing."""
    return cast(_Function, tf.autograph.experimental.do_not_convert(function))


def _executing_eagerly() -> bool:
    """Whether ops run as they are called (false inside tf.function and in TF1 graphs)."""
    return bool(tf.executing_eagerly())


def _make_subgraph(function: Callable[..., Any]) -> Any:
    """`function` as a graph of its own."""
    return tf.function(function)


def normalize_name(name: str) -> str:
    """A TensorFlow name with everything but letters, digits and underscores replaced."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def elastic() -> bool:
    """Whether the world may change size, so that graphs must not hold its size as a constant."""
    try:
        return bool(int(os.environ.get("HOROVOD_ELASTIC", "0")))
    except ValueError:
        return False


def tensor_name(tensor: Any) -> Optional[str]:
    """The name of a symbolic tensor or a variable; None for an eager tensor."""
    try:
        return str(tensor.name)
    except (AttributeError, ValueError):
        return None


def known_bytes(tensor: Any) -> Optional[int]:
    """Bytes of a dense tensor whose shape is known before the graph runs."""
    if isinstance(tensor, tf.IndexedSlices):
        return None
    count = tensor.shape.num_elements()
    return None if count is None else int(count) * int(tensor.dtype.size)


def variable_key(variable: Any) -> Any:
    """What identifies a variable of TensorFlow, Keras 2 or Keras 3."""
    inner = getattr(variable, "value", None)
    if isinstance(inner, tf.Variable):  # a Keras 3 variable holds a TensorFlow one
        variable = inner
    return variable.ref() if hasattr(variable, "ref") else id(variable)


def vars_to_refs(variables: Any) -> Any:
    """Hashable references to one variable or (as a tuple) several."""
    if isinstance(variables, (list, tuple)):
        return tuple(vars_to_refs(v) for v in variables)
    return variable_key(variables)


def refs_to_vars(refs: Any) -> Any:
    """The inverse of vars_to_refs."""
    if isinstance(refs, (list, tuple)):
        return [refs_to_vars(r) for r in refs]
    return refs.deref() if hasattr(refs, "deref") else refs


def not_none(values: Iterable[Any]) -> List[Any]:
    """The values that are not None."""
    return [v for v in values if v is not None]


def on_not_none(function: Callable[[List[Any]], List[Any]], values: Iterable[Any]) -> List[Any]:
    """Applies `function` to the values that are not None and puts the Nones back where they were."""
    values = list(values)
    results: Dict[int, Any] = dict(
        zip([i for i, v in enumerate(values) if v is not None], function(not_none(values)))
    )
    return [results.get(i) for i in range(len(values))]
