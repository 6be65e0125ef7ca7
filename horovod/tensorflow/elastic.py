# SPDX-License-Identifier: Apache-2.0
"""Elastic training: state that survives changes of workers, and the decorator that restarts the function."""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from horovod._keras.elastic import KerasState
from horovod.common.basics import basics as _basics
from horovod.common.elastic import ObjectState, checkpoint, run_fn
from horovod.common.exceptions import HorovodInternalError

__all__ = ["TensorFlowKerasState", "TensorFlowState", "checkpoint", "run"]
from horovod.tensorflow.functions import broadcast_object, broadcast_variables


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a training function, called with a state object first, so that it survives lost workers.

    After a failure the state goes back to its last commit; after a change of hosts training goes on with the
    new ranks.
    """

    @functools.wraps(func)
    def translated(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(state, *args, **kwargs)
        except tf.errors.UnknownError as error:
            if "Horovod" in str(error):
                raise HorovodInternalError(error) from error
            raise

    return run_fn(translated, _reset)


def _reset() -> None:
    _basics.reset()


class TensorFlowKerasState(KerasState):
    """State of a Keras model and its optimizer, and of whatever is given by keyword.

    Args:
        model: a built Keras model.
        optimizer: its optimizer; `model.optimizer` by default.
        backend: accepted for TF1 programs.
        **kwargs: further values to keep, e.g. batch=0, epoch=0.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        super().__init__(model, optimizer, **kwargs)


class TensorFlowState(ObjectState):
    """State of a list of variables, and of whatever is given by keyword.

    Args:
        variables: TF variables; in a TF1 graph all global ones by default.
        session: the TF1 session that holds their values.
        **kwargs: further values to keep.
    """

    def __init__(self, variables: Optional[Sequence[Any]] = None, session: Any = None, **kwargs: Any) -> None:
        self.variables = list(variables if variables is not None else tf.compat.v1.global_variables())
        self.session = session
        self._values: List[Any] = []
        self._save_variables()
        super().__init__(bcast_object=self._broadcast_object, get_rank=_basics.rank, **kwargs)

    def _broadcast_object(self, obj: Any, **kwargs: Any) -> Any:
        return broadcast_object(obj, session=self.session, **kwargs)

    def save(self) -> None:
        """Keeps the current values."""
        self._save_variables()
        super().save()

    def restore(self) -> None:
        """Brings the kept values back."""
        for variable, value in zip(self.variables, self._values):
            if self.session is not None:
                variable.load(value, self.session)
            else:
                variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the values of rank 0, and keeps them."""
        if self.session is not None:
            with self.session.graph.as_default():
                self.session.run(broadcast_variables(self.variables, root_rank=0))
        else:
            broadcast_variables(self.variables, root_rank=0)
        self._save_variables()
        super().sync()

    def snapshot(self) -> Any:
        """What was kept, for `checkpoint`."""
        return {"variables": [np.asarray(value) for value in self._values], "values": super().snapshot()}

    def load_snapshot(self, snapshot: Any) -> None:
        """Takes what `snapshot` gave."""
        self._values = list(snapshot["variables"])
        super().load_snapshot(snapshot["values"])
        self.restore()

    def _save_variables(self) -> None:
        if self.session is not None:
            self._values = self.session.run(self.variables)
        else:
            self._values = [v.numpy() for v in self.variables]
