# SPDX-License-Identifier: Apache-2.0
"""Starting all ranks from the same parameters, and exchanging Python objects."""

from __future__ import annotations

import types
from typing import Any, Optional

import mxnet as mx
from mxnet.gluon.parameter import DeferredInitializationError, Parameter, ParameterDict

from horovod.common.basics import basics
from horovod.common.objects import allgather_object, broadcast_object
from horovod.mxnet.mpi_ops import broadcast_

__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: Optional[str] = None) -> None:
    """Gives every rank the parameters of `root_rank`, in place.

    Parameters whose shape is not known yet are broadcast right after the first forward pass has initialised
    them.

    Args:
        params: `block.collect_params()`, or a dict of Parameters or NDArrays as in `module.get_params()`.
        prefix: put before the names, to tell several calls apart.
    """
    if not isinstance(params, (dict, ParameterDict)):
        raise ValueError(f"invalid params of type: {type(params)}")
    assert prefix is None or isinstance(prefix, str)
    if basics.size() == 1:
        return
    for key in sorted(params.keys()):
        value, name = params[key], (prefix or "") + str(key)
        if isinstance(value, mx.nd.NDArray):
            broadcast_(value, root_rank, name=name)
            continue
        try:
            value.data()
        except DeferredInitializationError:
            _broadcast_when_initialised(value, root_rank, name)
        else:
            _broadcast_parameter(value, root_rank, name)


def _broadcast_parameter(parameter: Parameter, root_rank: int, name: str) -> None:
    first, *copies = parameter.list_data()
    broadcast_(first, root_rank, name=name)
    for other in copies:
        first.copyto(other)


def _broadcast_when_initialised(parameter: Parameter, root_rank: int, name: str) -> None:
    initialise = parameter._init_impl

    def initialise_and_broadcast(self: Parameter, *args: Any, **kwargs: Any) -> None:
        initialise(*args, **kwargs)
        self._init_impl = initialise  # once
        _broadcast_parameter(self, root_rank, name)

    parameter._init_impl = types.MethodType(initialise_and_broadcast, parameter)
