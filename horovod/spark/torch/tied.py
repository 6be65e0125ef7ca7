# SPDX-License-Identifier: Apache-2.0
"""An optimizer together with the model that it trains."""

from __future__ import annotations

from typing import Any, List, Tuple

import torch


def tied_copies(model: Any, optimizer: Any) -> Tuple[Any, Any]:
    """Copies of both, where the optimizer's parameters are the model's: what was given stays as it was.

    They may not have been so: an estimator's model and optimizer are saved apart, and either may have been
    set anew. Then the model's parameters take the places in order. Raises ValueError if they do not fit.
    """
    import cloudpickle

    # In one pickle: parameters that are the same stay so.
    model, optimizer = cloudpickle.loads(cloudpickle.dumps((model, optimizer)))
    if not isinstance(optimizer, torch.optim.Optimizer):
        return model, optimizer  # Lightning takes more, and none for modules that have their own
    places: List[Any] = [param for group in optimizer.param_groups for param in group["params"]]
    of_model: List[Any] = list(model.parameters())
    known = {id(param) for param in of_model}
    if not all(id(param) in known for param in places):
        _replace(optimizer, _fitting(of_model, places))
    return model, optimizer


def _fitting(of_model: List[Any], places: List[Any]) -> List[Any]:
    """All of a model's parameters, or those that are not frozen, whichever fit."""
    trained = [param for param in of_model if param.requires_grad]
    for params in (of_model, trained):
        if _shapes(params) == _shapes(places):
            return params
    raise ValueError(
        "the optimizer was made for another model: its parameters have the shapes "
        f"{_shapes(places)}, those of the model {_shapes(of_model)}"
    )


def _shapes(params: List[Any]) -> List[Tuple[int, ...]]:
    return [tuple(param.shape) for param in params]


def _replace(optimizer: Any, params: List[Any]) -> None:
    """Gives an optimizer other parameters, with the state and the options of those before."""
    state = optimizer.state_dict()  # knows parameters by their places
    following = iter(params)
    for group in optimizer.param_groups:
        group["params"][:] = [next(following) for _ in group["params"]]
    optimizer.state.clear()
    optimizer.load_state_dict(state)
