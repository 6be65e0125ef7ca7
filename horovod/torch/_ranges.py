# SPDX-License-Identifier: Apache-2.0
"""Ranges for torch.profiler; under `torch.autograd.profiler.emit_nvtx` they are NVTX ranges as well."""

from __future__ import annotations

import contextlib
from typing import ContextManager

import torch
from torch._C._autograd import _profiler_enabled as wanted  # whether somebody profiles

__all__ = ["named", "wanted"]

_NOTHING = contextlib.nullcontext()


def named(text: str) -> ContextManager[object]:
    """A range while somebody profiles, e.g. "hvd.allreduce"; else nothing, at the cost of one question."""
    return torch.profiler.record_function(text) if wanted() else _NOTHING
