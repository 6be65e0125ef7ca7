# SPDX-License-Identifier: Apache-2.0
"""A process group of torch.distributed that somebody has initialised, e.g. Ray's TorchTrainer.

Asked last, when no launcher's variables are recognised. Looks only at a PyTorch that is already imported.
"""

from __future__ import annotations

import sys
from typing import Any, Optional

from horovod.rendezvous import offers
from horovod.rendezvous.identity import Identity, host_name
from horovod.rendezvous.network import primary_address
from horovod.rendezvous.over_torch_store import agree
from horovod.rendezvous.store import StoreClient


def read() -> Optional[Identity]:
    """This process in the default process group, if there is one of several ranks."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
        return None
    rank, size = dist.get_rank(), dist.get_world_size()
    found_by = f"torch.distributed's process group: rank {rank} of {size}"

    def meet(me: Identity, timeout: float) -> StoreClient:
        # Looked up every time: a process group may have been made anew, with other processes in it.
        store = dist.distributed_c10d._get_default_store()
        name = offers.name_of(f"horovod/process group of {size}", me)
        return agree(me, name, "the process group's store", store, primary_address(), timeout).connect(
            me, timeout
        )

    return Identity(rank, size, host_name(), "torch.distributed", meet=meet, found_by=found_by)
