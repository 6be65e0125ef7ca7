# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks' parameters agree when an optimizer first sees them; see horovod/common/weights.py.

An update that is part of a program has no values to look at, so this serves updates outside of jit.
"""

from __future__ import annotations

from typing import Any, List

import jax

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet
from horovod.common.weights import Fingerprint, WeightCheck, of_array
from horovod.jax._compat import is_concrete


class FirstUpdate:
    """Follows one optimizer until its parameters have been compared once."""

    def __init__(self, process_set: ProcessSet) -> None:
        self._process_set = process_set
        self._check = WeightCheck(
            "at the first update", "Start from params = hvd.broadcast_parameters(params) on all ranks."
        )

    def look_at(self, params: Any) -> None:
        """Called with the parameters of each update, if it was given any."""
        if self._check.over or params is None or not basics.is_initialized():
            return
        leaves = jax.tree_util.tree_flatten_with_path(params)[0]
        if not is_concrete([leaf for _, leaf in leaves]):
            return

        def fingerprints() -> List[Fingerprint]:
            return [of_array(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]

        self._check.after_step(self._process_set, fingerprints, stacklevel=4)
