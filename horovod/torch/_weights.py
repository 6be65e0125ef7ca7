# SPDX-License-Identifier: Apache-2.0
"""Whether the ranks' weights agree after an optimizer's first step; see horovod/common/weights.py."""

from __future__ import annotations

from typing import Dict, List, Optional

import torch

from horovod.common import weights
from horovod.common.log import log
from horovod.common.process_sets import ProcessSet
from horovod.common.weights import Check, Fingerprint

_ADVICE = (
    "Call hvd.broadcast_parameters(model.state_dict(), root_rank=0) once the model is built, and step the "
    "optimizer that hvd.DistributedOptimizer returns."
)
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class FirstStep:
    """Follows one optimizer until its weights have been compared once."""

    def __init__(self) -> None:
        self.over = False
        self._check: Optional[Check] = None

    def after_step(self, names: Dict[torch.Tensor, str], process_set: ProcessSet, name: str) -> None:
        """Called after each step on reduced gradients: starts the check, later looks at its result."""
        if self._check is not None:
            self.over = self._check.finished(stacklevel=4)
            return
        self.over = True
        if not weights.wanted(process_set):
            return
        trained = sorted((text, param) for param, text in names.items() if param.requires_grad)
        try:
            with torch.no_grad():
                prints = [_fingerprint(text, param) for text, param in trained if param.numel()]
        except (
            NotImplementedError,
            RuntimeError,
            TypeError,
        ) as error:  # tensors that are none of torch's own
            log.info("the ranks' weights are not compared: %s", error)
            return
        self._check = weights.start(prints, process_set, name, _ADVICE)
        self.over = self._check is None


def _fingerprint(name: str, param: torch.Tensor) -> Fingerprint:
    dense = param.detach().contiguous().reshape(-1)
    if dense.is_complex():
        dense = torch.view_as_real(dense).reshape(-1)
    bits = int(dense.view(_WORDS[dense.element_size()]).sum(dtype=torch.int64))
    last = dense.numel() - 1
    some = dense[[0, last // 3, last * 2 // 3, last]]
    return Fingerprint(name, bits, float(some.double().abs().sum()))


__all__: List[str] = ["FirstStep"]
