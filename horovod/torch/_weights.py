# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of parameters, for the check that the ranks' weights agree; see horovod/common/weights.py."""

from __future__ import annotations

from typing import Dict, List

import torch

from horovod.common.weights import Fingerprint, sample

ADVICE = (
    "Call hvd.broadcast_parameters(model.state_dict(), root_rank=0) once the model is built, and step the "
    "optimizer that hvd.DistributedOptimizer returns."
)
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprints(names: Dict[torch.Tensor, str]) -> List[Fingerprint]:
    """Those of all parameters that are trained, by name."""
    trained = {name: param for param, name in names.items() if param.requires_grad and param.numel()}
    return [_fingerprint(name, trained[name].detach()) for name in sorted(trained)]


def _fingerprint(name: str, weight: torch.Tensor) -> Fingerprint:
    flat = weight.contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    bits = flat.view(_WORDS[flat.element_size()]).sum(dtype=torch.int64)
    magnitude = flat[sample(flat.numel())].double().abs().sum()
    return Fingerprint(name, int(bits), float(magnitude))
