# SPDX-License-Identifier: Apache-2.0
"""Finds out who launched this process.

The readers (horovod/rendezvous/readers, one file per launcher) are asked in order; the first that recognises
its launcher's environment wins. Without a launcher the process is a world of its own. They are asked at every
hvd.init(), since a process may live through several jobs (Spark's Python workers) or several worlds of one.
"""

from __future__ import annotations

import os
import warnings
from typing import Mapping, Optional

from horovod.rendezvous.identity import Identity, alone, check
from horovod.rendezvous.readers import READERS, process_group


def detect(env: Optional[Mapping[str, str]] = None) -> Identity:
    """Who this process is, according to the first launcher recognised.

    Args:
        env: variables to look at instead of this process' environment and modules.
    """
    variables = os.environ if env is None else env
    for read in READERS:
        identity = read(variables)
        if identity is not None:
            return check(identity)
    found = process_group.read() if env is None else None
    if found is None:
        _warn_of_torch_variables(variables)
    return check(found) if found is not None else alone()


def _warn_of_torch_variables(env: Mapping[str, str]) -> None:
    """Some start their ranks as torchrun does, but without a place to meet: N worlds of one would train."""
    size = env.get("WORLD_SIZE", "")
    if "RANK" in env and size.isdigit() and int(size) > 1:
        warnings.warn(
            f"RANK={env['RANK']} and WORLD_SIZE={size} are set, but by no launcher that Horovod knows: this "
            "process is a world of its own, rank 0 of 1. Call torch.distributed.init_process_group() before "
            "hvd.init() (Ray's TorchTrainer has done so before it calls your function), or start the ranks "
            "with horovodrun, torchrun, mpirun or srun",
            RuntimeWarning,
            stacklevel=2,
        )
