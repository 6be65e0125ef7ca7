# SPDX-License-Identifier: Apache-2.0
"""The state of a PyTorch training: models, optimizers, samplers, and plain values."""

from __future__ import annotations

import collections
import copy
from typing import Any, Dict, List, Optional, Tuple, Type

import torch

from horovod.common.elastic import ObjectState
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from horovod.torch.mpi_ops import rank


class StateHandler:
    """Keeps one value: how to save it, bring it back, and give every rank rank 0's."""

    _saved: Any = None

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keeps a copy of the current value."""
        raise NotImplementedError

    def restore(self) -> None:
        """Brings the copy back into the value."""
        raise NotImplementedError

    def snapshot(self) -> Any:
        """The copy, for `checkpoint`."""
        return self._saved

    def load_snapshot(self, snapshot: Any) -> None:
        """Takes what `snapshot` gave, and brings it back into the value."""
        self._saved = snapshot
        self.restore()

    def sync(self) -> None:
        """Gives every rank the current value of rank 0."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Replaces the value and keeps it."""
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    """Keeps a module's parameters and buffers."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(model)
        self.save()

    def save(self) -> None:
        self._saved = copied(self.value.state_dict(), self._saved)

    def restore(self) -> None:
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(StateHandler):
    """Keeps an optimizer's options and state."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
        self.save()

    def save(self) -> None:
        self._saved = copied(self.value.state_dict(), self._saved)

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)


class SamplerStateHandler(StateHandler):
    """Keeps how far an `ElasticSampler` has come."""

    def __init__(self, sampler: ElasticSampler) -> None:
        super().__init__(sampler)
        self._saved = copy.deepcopy(sampler.state_dict())

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(self._saved)

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))


def copied(value: Any, memory: Any = None) -> Any:
    """A deep copy of a state_dict, in the memory of an earlier copy where that fits.

    A commit at every step then allocates nothing: 100 MB cost a memcpy, not a memcpy and 25,000 page faults.
    """
    if isinstance(value, torch.Tensor):
        there = isinstance(memory, torch.Tensor) and memory.device == value.device
        if there and memory.shape == value.shape and memory.dtype == value.dtype and memory.is_contiguous():
            return memory.copy_(value.detach())
        return value.detach().clone(memory_format=torch.contiguous_format)
    if type(value) in (dict, collections.OrderedDict):
        before = memory if isinstance(memory, dict) else {}
        return type(value)((key, copied(one, before.get(key))) for key, one in value.items())
    if type(value) is list:
        slots = memory if isinstance(memory, list) and len(memory) == len(value) else [None] * len(value)
        return [copied(one, slot) for one, slot in zip(value, slots)]
    return copy.deepcopy(value)


Registry = List[Tuple[Type[Any], Type[StateHandler]]]

_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """The types that are kept in a special way, with their handlers; the first that fits counts."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replaces the registry, e.g. to add a handler for a type of your own."""
    global _registry
    _registry = registry


def _handler_for(value: Any) -> Optional[StateHandler]:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None


class TorchState(ObjectState):
    """The state of a training; every argument becomes an attribute.

    Args:
        model: a module, or None.
        optimizer: an optimizer, or None.
        kwargs: whatever else must be kept: samplers, further models, the epoch, ...
    """

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        **kwargs: Any,
    ) -> None:
        kwargs.update(model=model, optimizer=optimizer)
        handlers: Dict[str, StateHandler] = {}
        for name, value in kwargs.items():
            handler = _handler_for(value)
            if handler is not None:
                handlers[name] = handler
        self._handlers = handlers
        plain = {name: value for name, value in kwargs.items() if name not in handlers}
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **plain)

    def save(self) -> None:
        """Keeps the current values."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Brings the values last saved back."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Gives every rank the values of rank 0, and keeps them: a newcomer may be the only survivor soon."""
        for handler in self._handlers.values():
            handler.sync()
            handler.save()
        super().sync()

    def reset(self) -> None:
        """The job has new ranks: samplers share what is left between them."""
        for handler in self._handlers.values():
            if isinstance(handler, SamplerStateHandler):
                handler.value.reset()

    def snapshot(self) -> Any:
        """What was kept, for `checkpoint`."""
        handled = {name: handler.snapshot() for name, handler in self._handlers.items()}
        return {"handled": handled, "values": super().snapshot()}

    def load_snapshot(self, snapshot: Any) -> None:
        """Takes what `snapshot` gave."""
        for name, one in snapshot["handled"].items():
            self._handlers[name].load_snapshot(one)
        super().load_snapshot(snapshot["values"])

    def samples_left(self) -> Optional[int]:
        """How many samples the samplers have left in this epoch."""
        samplers = [one.value for one in self._handlers.values() if isinstance(one, SamplerStateHandler)]
        return sum(len(one.remaining_indices) for one in samplers) if samplers else None

    def __getattr__(self, name: str) -> Any:
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            return handlers[name].value
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        handlers = self.__dict__.get("_handlers", {})
        if name in handlers:
            handlers[name].set_value(value)
        else:
            super().__setattr__(name, value)
