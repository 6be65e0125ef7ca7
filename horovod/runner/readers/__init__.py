# SPDX-License-Identifier: Apache-2.0
"""The launchers we recognise, one small file each, asked in this order.

Ours comes first because it may run inside any of the others' allocations. torchrun comes before MPI and
Slurm for the same reason: `srun torchrun ...` sets the variables of both, and torchrun is the inner one.
Slurm comes after MPI because `mpirun` inside an allocation sets both.
"""

from __future__ import annotations

from typing import Callable, List, Mapping, Optional

from horovod.runner.identity import Identity
from horovod.runner.readers import own

Reader = Callable[[Mapping[str, str]], Optional[Identity]]

READERS: List[Reader] = [own.read]
