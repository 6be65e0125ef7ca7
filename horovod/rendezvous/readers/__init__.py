# SPDX-License-Identifier: Apache-2.0
"""The launchers we recognise, one small file each, asked in this order.

Ours comes first because it may run inside any of the others' allocations; plain variables next, since
somebody wrote them down on purpose. torchrun comes before MPI and Slurm because `srun torchrun ...` sets the
variables of both, and torchrun is the inner one. Slurm comes last because `mpirun` inside an allocation sets
both.
"""

from __future__ import annotations

import importlib
from typing import Callable, List, Mapping, Optional, Tuple

from horovod.rendezvous.identity import Identity

__all__ = ["READERS", "number"]

Reader = Callable[[Mapping[str, str]], Optional[Identity]]

# module, and a variable without which it need not even be loaded
_ORDER: Tuple[Tuple[str, str], ...] = (
    ("own", "HOROVOD_GLOO_RENDEZVOUS_ADDR"),
    ("plain", "HOROVOD_MASTER_ADDR"),
    ("torchrun", "TORCHELASTIC_RUN_ID"),
    ("jsrun", "JSM_NAMESPACE_RANK"),
    ("openmpi", "OMPI_COMM_WORLD_RANK"),
    ("pmi", "PMI_RANK"),
    ("slurm", "SLURM_PROCID"),
)


def _lazy(module: str, variable: str) -> Reader:
    def read(env: Mapping[str, str]) -> Optional[Identity]:
        if variable not in env:
            return None
        reader: Reader = importlib.import_module(f"horovod.rendezvous.readers.{module}").read
        return reader(env)

    return read


READERS: List[Reader] = [_lazy(module, variable) for module, variable in _ORDER]


def number(env: Mapping[str, str], name: str, default: Optional[int] = None) -> int:
    """The number that a launcher's variable holds; without a default it must be set."""
    text = env.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(str(text))
    except ValueError:
        raise RuntimeError(f"{name}={text} is not a whole number; was it set by hand?") from None
