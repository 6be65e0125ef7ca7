# SPDX-License-Identifier: Apache-2.0
"""`DistributedOptimizer`: an optimizer whose gradients are reduced over all ranks.

The wrapper is an instance of a class derived from the wrapped optimizer's, but has no optimizer state of its
own: `param_groups`, `state` and every other attribute are those of the wrapped object, read and written
there. So schedulers, checkpoints and scalers work on either of the two, and the two always agree.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple, Type

import torch

from horovod.common.basics import basics
from horovod.common.constants import Adasum, Average, Sum
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.torch._adasum import AdasumReducer
from horovod.torch._naming import (
    Groups,
    Named,
    check_groups,
    default_name,
    find_duplicates,
    group_names,
    name_parameters,
    parameters_of,
)
from horovod.torch._reducer import GradientReducer, Rule
from horovod.torch._verbs import Options, allreduce_now
from horovod.torch.compression import Compression

_ALREADY_SYNCHRONIZED = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
    "Gradients are reduced once either way: loss.backward() returns with reduced gradients, so the explicit "
    "synchronize() can be dropped."
)


class _Settings(NamedTuple):
    """The arguments of `DistributedOptimizer`, in a form that can be pickled."""

    compression: Any
    backward_passes_per_step: int
    op: int
    gradient_predivide_factor: float
    sparse_as_dense: bool
    ranks: Optional[Tuple[int, ...]]  # of the process set; None: all


class _Core:
    """What the wrapper keeps beside the wrapped optimizer."""

    def __init__(
        self,
        inner: torch.optim.Optimizer,
        names: Dict[torch.Tensor, str],
        groups: List[List[str]],
        settings: _Settings,
        process_set: ProcessSet,
    ) -> None:
        self.inner = inner
        self.names = names
        self.groups = groups
        self.settings = settings
        self.skip = False
        self.explicit = False  # synchronize() was called since the last step
        self.hooked: Set[int] = set()  # ids of parameters that have a hook, or had one
        factor = settings.gradient_predivide_factor
        adasum = settings.op == Adasum and basics.size() > 1
        rule = Rule(
            settings.op, 1.0 / factor, factor, settings.compression, settings.sparse_as_dense, process_set
        )
        make = AdasumReducer if adasum else GradientReducer
        self.reducer = make(rule, settings.backward_passes_per_step)
        params = {name: param for param, name in names.items() if param.requires_grad}
        members = [[(n, params[n]) for n in group if n in params] for group in groups]
        self.hooked.update(id(param) for param in params.values())
        self.reducer.attach([group for group in members if group])

    def hook_new_parameters(self) -> None:
        """Takes in parameters that were added or unfrozen since the last time."""
        for number, group in enumerate(self.inner.param_groups):
            for index, param in enumerate(group["params"]):
                if param.requires_grad and id(param) not in self.hooked:
                    self.hooked.add(id(param))
                    name = self.names.setdefault(param, default_name(number, index))
                    self.reducer.attach([[(name, param)]])


class _Distributed:
    """What a distributed optimizer has beside the class it wraps; see `_class_around`."""

    _hvd: _Core

    # ------------------------------------------------------------------------------ attributes --

    def __getattr__(self, name: str) -> Any:  # called for what the class does not have
        if name == "_hvd":
            raise AttributeError(name)
        return getattr(self._hvd.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        foreign = "_hvd" not in self.__dict__  # a wrapper that takes on our class, as Lightning's does
        if foreign or name in _Distributed.__dict__ or name == "_hvd":  # schedulers replace `step`
            object.__setattr__(self, name, value)
        else:
            setattr(self._hvd.inner, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            object.__delattr__(self, name)
        else:
            delattr(self._hvd.inner, name)

    def __reduce_ex__(self, protocol: Any) -> Tuple[Any, ...]:
        core = self._hvd
        names = [core.names.get(param, "") for param in parameters_of(core.inner)]
        return _restore, (core.inner, names, core.groups, core.settings)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The wrapped optimizer."""
        return self._hvd.inner

    @property
    def backward_passes_per_step(self) -> int:
        """How many backward passes accumulate locally before a reduction."""
        return self._hvd.reducer.passes_per_step

    @property
    def op(self) -> int:
        """The reduction: hvd.Average, Sum or Adasum."""
        return self._hvd.settings.op

    @property
    def gradient_predivide_factor(self) -> float:
        """Part of the division by size that is done before the sum."""
        return self._hvd.settings.gradient_predivide_factor

    @property
    def sparse_as_dense(self) -> bool:
        """Whether sparse gradients travel as dense ones."""
        return self._hvd.settings.sparse_as_dense

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that share gradients."""
        return self._hvd.reducer.rule.process_set

    @property
    def _compression(self) -> Any:
        return self._hvd.settings.compression

    @property
    def _parameter_names(self) -> Dict[torch.Tensor, str]:
        return self._hvd.names

    @property
    def _requires_update(self) -> Set[torch.Tensor]:
        return {param for param in parameters_of(self._hvd.inner) if id(param) in self._hvd.hooked}

    @property
    def _handles(self) -> Dict[torch.Tensor, Any]:
        return {slot.param: slot for slot in self._hvd.reducer.slots if slot.grad is not None}

    @property
    def _allreduce_delay(self) -> Dict[torch.Tensor, int]:
        passes = self.backward_passes_per_step
        return {slot.param: passes - slot.passes for slot in self._hvd.reducer.slots}

    find_duplicates = staticmethod(find_duplicates)

    # -------------------------------------------------------------------------------- reducing --

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes accumulate locally before a reduction."""
        self._hvd.reducer.passes_per_step = _check_passes(passes)
        self._hvd.settings = self._hvd.settings._replace(backward_passes_per_step=passes)

    def synchronize(self) -> None:
        """Makes sure that every gradient is reduced.

        `loss.backward()` has usually done so already. What may be left are gradients accumulated in fewer
        than `backward_passes_per_step` passes or inside `no_sync`, and a step without any backward.
        """
        self._hvd.explicit = True
        self._hvd.hook_new_parameters()
        self._hvd.reducer.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it `step` does not call `synchronize`. Kept for existing scripts; no longer needed."""
        if isinstance(self._hvd.reducer, AdasumReducer):
            raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        self._hvd.skip = True
        try:
            yield
        finally:
            self._hvd.skip = False

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it gradients accumulate locally; the next backward outside reduces their sum.

        A `step` inside uses the local gradients as they are.
        """
        reducer = self._hvd.reducer
        before, reducer.paused = reducer.paused, True
        try:
            yield
        finally:
            reducer.paused = before

    def step(self, closure: Optional[Callable[[], Any]] = None, *args: Any, **kwargs: Any) -> Any:
        """Steps the wrapped optimizer on reduced gradients.

        A closure's loss is reduced like the gradients, because optimizers such as LBFGS decide by it and must
        decide alike on all ranks.
        """
        core = self._hvd
        reducer = core.reducer
        if closure is not None:
            closure = self._reduced(closure)
        elif reducer.paused:
            reducer.step_locally()
        elif not core.skip:
            if core.explicit:
                warnings.warn(_ALREADY_SYNCHRONIZED, stacklevel=2)
            core.hook_new_parameters()
            reducer.synchronize()
        result = reducer.step(core.inner, closure, *args, **kwargs)
        core.explicit = False
        reducer.end_round()
        return result

    def _reduced(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure, with gradients and loss reduced."""
        core = self._hvd
        reducer = core.reducer

        @functools.wraps(closure)
        def reduced() -> Any:
            with torch.enable_grad():
                loss = closure()
            if reducer.paused or isinstance(reducer, AdasumReducer) or not reducer.active:
                return loss
            core.hook_new_parameters()
            reducer.synchronize()
            reducer.end_round()
            return _reduce_loss(loss, reducer)

        return reduced

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients."""
        self._hvd.hook_new_parameters()
        self._hvd.reducer.forget_gradients()
        self._hvd.inner.zero_grad(set_to_none)

    # For torch.compile: the engine cannot be traced into.
    for _method in (synchronize, step, zero_grad):
        setattr(_method, "_torchdynamo_disable", True)  # noqa: B010 - mypy knows no attributes of functions
    del _method

    # ------------------------------------------------------------------ the optimizer's methods --

    def state_dict(self) -> Any:
        """The wrapped optimizer's state."""
        return self._hvd.inner.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        """Loads the wrapped optimizer's state."""
        self._hvd.reducer.wait()
        self._hvd.inner.load_state_dict(state_dict)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds parameters, on all ranks alike; their gradients are reduced from now on."""
        self._hvd.inner.add_param_group(param_group)
        self._hvd.hook_new_parameters()


def _reduce_loss(loss: Any, reducer: GradientReducer) -> Any:
    """A closure's loss over all ranks; what is not a single number is left as it is."""
    is_tensor = isinstance(loss, torch.Tensor)
    if not (is_tensor and loss.numel() == 1) and not isinstance(loss, float):
        return loss
    options = Options(Average if reducer.rule.op == Average else Sum)
    set_id = process_set_id(reducer.rule.process_set)
    value = loss.detach() if is_tensor else torch.tensor(loss, dtype=torch.float64)
    reduced = allreduce_now(value, reducer.wire_name("closure.loss"), options, set_id)
    return reduced if is_tensor else reduced.item()


_classes: Dict[Any, Type[Any]] = {}


def _class_around(base: Type[torch.optim.Optimizer]) -> Type[Any]:
    """The class of a distributed `base`: it has the same name, and is found by it in this module."""
    if base not in _classes:
        names = {"__module__": __name__, "__doc__": base.__doc__}
        _classes[base] = type(base.__name__, (_Distributed, base), names)
    return _classes[base]


def __getattr__(name: str) -> Any:
    # Makes the classes above importable, so that whatever pickles the class itself works too.
    base = getattr(torch.optim, name, None)
    if isinstance(base, type) and issubclass(base, torch.optim.Optimizer):
        return _class_around(base)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _wrap(
    inner: torch.optim.Optimizer,
    names: Dict[torch.Tensor, str],
    groups: List[List[str]],
    settings: _Settings,
    process_set: ProcessSet,
) -> Any:
    wrapper = object.__new__(_class_around(type(inner)))
    object.__setattr__(wrapper, "_hvd", _Core(inner, names, groups, settings, process_set))
    return wrapper


def _restore(
    inner: torch.optim.Optimizer, names: List[str], groups: List[List[str]], settings: _Settings
) -> Any:
    """Undoes `_Distributed.__reduce_ex__`: after unpickling or copying, on whatever ranks there are now."""
    process_set = global_process_set
    if settings.ranks is not None:
        process_set = _registered_set(settings.ranks)
    named = dict(zip(parameters_of(inner), names))
    return _wrap(inner, named, groups, settings, process_set)


def _registered_set(ranks: Tuple[int, ...]) -> ProcessSet:
    made = ProcessSet(ranks)
    if basics.is_initialized():
        known = basics._get_process_set_ids_and_ranks()
        numbers = [number for number, members in known.items() if members == list(ranks)]
        made.process_set_id = numbers[0] if numbers else None
    return made


def _check_passes(passes: int) -> int:
    if passes <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    return passes


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Named] = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Wraps an optimizer so that it steps on gradients reduced over all ranks.

    Gradients are sent while backward still computes the others. When `loss.backward()` returns they are the
    reduced ones; parameters that took no part count as zeros.

    Args:
        optimizer: any `torch.optim.Optimizer`.
        named_parameters: `model.named_parameters()`; the names appear in errors and the timeline.
        compression: what travels instead of the gradients, see `horovod.torch.compression`.
        backward_passes_per_step: gradients of so many backward passes are added up locally before they are
            reduced. Their sum is not divided. A step after fewer passes reduces what there is.
        op: hvd.Average, hvd.Sum or hvd.Adasum.
        gradient_predivide_factor: with Average, divide by this before the sum and by size / this after it.
        num_groups: old spelling of `groups=n`.
        groups: reduce gradients in groups: their number, or lists of parameters. None: let the engine decide.
        sparse_as_dense: send sparse gradients as dense ones.
        process_set: the ranks that share gradients; optimizers on other ranks act locally.

    Returns:
        An instance of the optimizer's class with the same `param_groups` and `state`, and with the methods
        `synchronize`, `skip_synchronize`, `no_sync` and `set_backward_passes_per_step`.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed in v0.23.0.",
            DeprecationWarning,
            stacklevel=2,
        )
        groups = num_groups if groups is None else groups
    if isinstance(optimizer, _Distributed):
        optimizer = optimizer._hvd.inner
    groups = check_groups(groups)
    settings = _Settings(
        compression,
        _check_passes(backward_passes_per_step),
        op,
        gradient_predivide_factor,
        sparse_as_dense,
        None if process_set is global_process_set else tuple(process_set.ranks or ()),
    )
    names = name_parameters(optimizer, named_parameters)
    wrapper = _wrap(optimizer, names, group_names(names, groups, process_set), settings, process_set)
    wrapper._hvd.reducer.bind()
    return wrapper


_DistributedOptimizer = _Distributed
_DistributedAdasumOptimizer = _Distributed
