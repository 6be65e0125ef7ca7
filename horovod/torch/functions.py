# SPDX-License-Identifier: Apache-2.0
"""Starting all ranks from the same model and optimizer, and sharing Python objects."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from horovod.common import handles
from horovod.common.basics import basics
from horovod.common.calls import Call
from horovod.common.objects import allgather_object, broadcast_object
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.verbs import BROADCAST
from horovod.torch import _sparse
from horovod.torch._naming import parameters_of
from horovod.torch._operation import Operation

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]

Params = Union[Dict[str, torch.Tensor], Sequence[Any]]


def broadcast_parameters(
    params: Params, root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Overwrites tensors with the root's values, e.g. before training starts.

    Args:
        params: `model.state_dict()` (parameters and buffers), or a list of tensors or of (name, tensor).
        root_rank: the rank whose values count.
        process_set: the ranks that take part.
    """
    if isinstance(params, dict):
        named: List[Tuple[Optional[str], Any]] = sorted(params.items())
    elif isinstance(params, (list, tuple)):
        named = [pair if isinstance(pair, tuple) else (None, pair) for pair in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    set_id = process_set_id(process_set)
    started = []
    for name, tensor in named:
        if tensor is None:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"{name!r} is a {type(tensor).__name__}, not a tensor; use hvd.broadcast_object for it."
            )
        started.append(_start_broadcast(tensor, name, root_rank, set_id))
    for handle in started:
        handles.synchronize(handle)


def _start_broadcast(tensor: torch.Tensor, name: Optional[str], root_rank: int, set_id: int) -> int:
    return Operation(Call(BROADCAST, name, set_id, root=root_rank), (tensor,), in_place=True).start()


class _Placeholder(NamedTuple):
    """Stands for a tensor in a tree that travels as an object; the tensor itself follows."""

    shape: Tuple[int, ...]
    dtype: torch.dtype
    on_host: bool


def _describe(tree: Any, tensors: List[torch.Tensor]) -> Any:
    """The tree with placeholders for its tensors, which are appended to `tensors` in order."""
    if isinstance(tree, torch.Tensor):
        tensors.append(tree)
        return _Placeholder(tuple(tree.shape), tree.dtype, tree.is_cpu)
    if isinstance(tree, dict):
        return {key: _describe(value, tensors) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(_describe(value, tensors) for value in tree)
    return tree


def _fits(mine: Any, wanted: _Placeholder) -> bool:
    return (
        isinstance(mine, torch.Tensor)
        and tuple(mine.shape) == wanted.shape
        and mine.dtype is wanted.dtype
        and mine.is_cpu == wanted.on_host
    )


def _rebuild(tree: Any, mine: Any, device: torch.device, tensors: List[torch.Tensor]) -> Any:
    """The described tree with tensors to receive into: those of `mine` where they fit, else new ones."""
    if isinstance(tree, _Placeholder):
        if not _fits(mine, tree):
            mine = torch.empty(tree.shape, dtype=tree.dtype, device="cpu" if tree.on_host else device)
        tensors.append(mine)
        return mine
    if isinstance(tree, dict):
        own = mine if isinstance(mine, dict) else {}
        return {key: _rebuild(value, own.get(key), device, tensors) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        given = mine if type(mine) is type(tree) and len(mine) == len(tree) else [None] * len(tree)
        return type(tree)(_rebuild(value, own, device, tensors) for value, own in zip(tree, given))
    return tree


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: Optional[torch.nn.Module] = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives an optimizer the root's options (learning rates and all others) and state.

    Works for any optimizer: whatever the root's state holds, tensors, numbers or nested lists, is what every
    rank holds afterwards, also where a rank had no state yet. Nothing is stepped to create state; but where
    an optimizer had none, parameters that want a gradient and have none get zeros, as they always did here.

    Args:
        optimizer: plain or distributed; its parameters must be in the same order on all ranks.
        root_rank: the rank whose state counts.
        model: tells which parameters have sparse gradients: those of its `Embedding(sparse=True)` layers.
        process_set: the ranks that take part.
    """
    params = parameters_of(optimizer)
    if not optimizer.state:
        _fill_gradients(optimizer, params, model)
    number_of = {param: number for number, param in enumerate(params)}
    options = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    # Keyed by a parameter's number, or by the key itself for state that belongs to none.
    state = {number_of.get(key, key): value for key, value in optimizer.state.items()}
    sent: List[torch.Tensor] = []
    description = _describe((options, state), sent)
    is_root = basics.rank() == root_rank
    options_tree, state_tree = broadcast_object(
        description if is_root else None, root_rank, "optimizer_state", process_set
    )
    received: List[torch.Tensor] = sent
    if not is_root:
        received = []
        for group, tree, own in zip(optimizer.param_groups, options_tree, options):
            group.update(_rebuild(tree, own, _device_of(group["params"]), received))
        optimizer.state.clear()
        for key, tree in state_tree.items():
            owner = params[key] if type(key) is int else key
            device = _device_of([owner] if isinstance(owner, torch.Tensor) else params)
            optimizer.state[owner] = _rebuild(tree, state.get(key), device, received)
    set_id = process_set_id(process_set)
    started = [
        _start_broadcast(tensor, f"optimizer_state.{number}", root_rank, set_id)
        for number, tensor in enumerate(received)
    ]
    for handle in started:
        handles.synchronize(handle)


def _fill_gradients(
    optimizer: torch.optim.Optimizer, params: Sequence[torch.Tensor], model: Optional[torch.nn.Module]
) -> None:
    """Gives parameters without a gradient one of zeros, sparse where the first real one will be."""
    layers = () if model is None else model.modules()
    tables = {
        id(layer.weight)
        for layer in layers
        if isinstance(layer, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and layer.sparse
    }
    all_sparse = isinstance(optimizer, torch.optim.SparseAdam)
    for param in params:
        if param.requires_grad and param.grad is None:
            sparse = all_sparse or id(param) in tables
            param.grad = _sparse.empty_like(param) if sparse else torch.zeros_like(param)


def _device_of(params: Sequence[torch.Tensor]) -> torch.device:
    return params[0].device if params else torch.device("cpu")
