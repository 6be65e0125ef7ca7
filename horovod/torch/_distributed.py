# SPDX-License-Identifier: Apache-2.0
"""The class of distributed optimizers.

The wrapper is an instance of a class derived from the wrapped optimizer's, but has no optimizer state of its
own: `param_groups`, `state` and every other attribute are those of the wrapped object, read and written
there. So schedulers, checkpoints and scalers work on either of the two, and the two always agree.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Type

import torch

from horovod.common.arguments import check_passes
from horovod.common.basics import basics
from horovod.common.calls import Call
from horovod.common.constants import Average, Sum
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set, process_set_id
from horovod.common.verbs import ALLREDUCE
from horovod.torch._adasum import AdasumReducer
from horovod.torch._core import Core, Settings
from horovod.torch._known_privates import KnownPrivates
from horovod.torch._naming import parameters_of
from horovod.torch._operation import run_one
from horovod.torch._reducer import GradientReducer

_ALREADY_SYNCHRONIZED = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
    "Gradients are reduced once either way: loss.backward() returns with reduced gradients, so the explicit "
    "synchronize() can be dropped."
)


class Distributed(KnownPrivates):
    """What a distributed optimizer has beside the class it wraps; see `class_around`."""

    # ------------------------------------------------------------------------------ attributes --

    def __getattr__(self, name: str) -> Any:  # called for what the class does not have
        if name == "_hvd":
            raise AttributeError(name)
        return getattr(self._hvd.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        foreign = "_hvd" not in self.__dict__  # a wrapper that takes on our class, as Lightning's does
        if foreign or hasattr(Distributed, name) or name == "_hvd":  # schedulers replace `step`
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
        return restore, (core.inner, names, core.groups, core.settings)

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
        """Whether sparse gradients travel as dense ones from the start."""
        return self._hvd.settings.sparse_as_dense

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that share gradients."""
        return self._hvd.reducer.rule.process_set

    # -------------------------------------------------------------------------------- reducing --

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes accumulate locally before a reduction."""
        self._hvd.reducer.passes_per_step = check_passes(passes)
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
        if closure is not None:
            shared = not core.reducer.paused
            closure = self._reduced(closure)
        else:
            if core.explicit and not core.skip and not core.reducer.paused:
                warnings.warn(_ALREADY_SYNCHRONIZED, stacklevel=2)
            shared = core.prepare_step()
        result = core.reducer.step(core.inner, closure, *args, **kwargs)
        core.end_step(shared)
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
        # In a job that has failed wait() lets go of what is under way; the state can be restored.
        with contextlib.suppress(HorovodInternalError):
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
    op = Average if reducer.rule.op == Average else Sum
    call = Call(ALLREDUCE, reducer.name_for("closure.loss"), process_set_id(reducer.rule.process_set), op)
    value = loss.detach() if is_tensor else torch.tensor(loss, dtype=torch.float64)
    reduced = run_one(call, value)
    return reduced if is_tensor else reduced.item()


_classes: Dict[Any, Type[Any]] = {}


def class_around(base: Type[torch.optim.Optimizer]) -> Type[Any]:
    """The class of a distributed `base`: it has the same name, and is found by it in optimizer.py."""
    if base not in _classes:
        names = {"__module__": "horovod.torch.optimizer", "__doc__": base.__doc__}
        _classes[base] = type(base.__name__, (Distributed, base), names)
    return _classes[base]


def wrap(
    inner: torch.optim.Optimizer,
    names: Dict[torch.Tensor, str],
    groups: List[List[str]],
    settings: Settings,
    process_set: ProcessSet,
) -> Any:
    """A distributed optimizer around `inner`."""
    wrapper = object.__new__(class_around(type(inner)))
    object.__setattr__(wrapper, "_hvd", Core(inner, names, groups, settings, process_set))
    return wrapper


def restore(
    inner: torch.optim.Optimizer, names: List[str], groups: List[List[str]], settings: Settings
) -> Any:
    """Undoes `Distributed.__reduce_ex__`: after unpickling or copying, on whatever ranks there are now."""
    process_set = global_process_set
    if settings.ranks is not None:
        process_set = _registered_set(settings.ranks)
    named = dict(zip(parameters_of(inner), names))
    return wrap(inner, named, groups, settings, process_set)


def _registered_set(ranks: Tuple[int, ...]) -> ProcessSet:
    made = ProcessSet(ranks)
    if basics.is_initialized():
        known = basics._get_process_set_ids_and_ranks()
        numbers = [number for number, members in known.items() if members == list(ranks)]
        made.process_set_id = numbers[0] if numbers else None
    return made
