# SPDX-License-Identifier: Apache-2.0
"""The hook of TF1 monitored sessions."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.tensorflow import _weights
from horovod.tensorflow.functions import broadcast_global_variables


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Broadcasts all global variables from one rank when a session starts.

    It makes all ranks start alike, from random values or from a checkpoint that only the root has.

    Args:
        root_rank: the rank whose values are taken.
        device: accepted for compatibility.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Makes the op, while the graph may still be changed."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it, once the variables have values."""
        session.run(self.bcast_op)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Compares the ranks' weights after the first step that changed them."""
        _weights.look_in_session(run_context.session)
