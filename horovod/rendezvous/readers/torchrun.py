# SPDX-License-Identifier: Apache-2.0
"""torchrun (torch.distributed.run).

    RANK=3   WORLD_SIZE=8   LOCAL_RANK=1   LOCAL_WORLD_SIZE=2   GROUP_RANK=1
    MASTER_ADDR=node1   MASTER_PORT=29500   TORCHELASTIC_RUN_ID=none   TORCHELASTIC_RESTART_COUNT=0
    TORCHELASTIC_USE_AGENT_STORE=True

Rank 0 serves our store and leaves its address and secret in torchrun's own key-value store, which torchrun
keeps open for exactly such things. That store asks nobody for a password: whoever can reach MASTER_PORT while
the job runs can read the secret.
On a network you share with strangers use horovodrun, srun or mpirun instead.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Mapping, Optional

from horovod.rendezvous import offers
from horovod.rendezvous.errors import StoreError
from horovod.rendezvous.identity import Identity, host_name
from horovod.rendezvous.network import loopback, primary_address
from horovod.rendezvous.over_torch_store import agree
from horovod.rendezvous.readers import number
from horovod.rendezvous.store import StoreClient

RANK, SIZE, LOCAL_RANK, LOCAL_SIZE = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"


def read(env: Mapping[str, str]) -> Optional[Identity]:
    """The identity torchrun gave this process."""
    if "TORCHELASTIC_RUN_ID" not in env or RANK not in env or SIZE not in env:
        return None
    address, port = env["MASTER_ADDR"], number(env, "MASTER_PORT")
    attempt = env.get("TORCHELASTIC_RESTART_COUNT", "0")
    job = f"horovod/{env['TORCHELASTIC_RUN_ID']}/{attempt}"
    has_store = env.get("TORCHELASTIC_USE_AGENT_STORE", "False") == "True"
    one_host = env.get(LOCAL_SIZE) == env[SIZE]

    def meet(me: Identity, timeout: float) -> StoreClient:
        name = offers.name_of(job, me)
        offer = offers.remembered(name)
        if offer is None:
            if not has_store:
                raise StoreError(
                    "torchrun was told not to share its store (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1), so its "
                    "ranks cannot find each other: unset that variable, or start with horovodrun"
                )
            here = loopback() if one_host else primary_address(address)
            shown = f"torchrun's store at {address}:{port}"
            offer = agree(me, name, shown, _open(address, port, timeout), here, timeout)
            offers.remember(name, offer)
        return offer.connect(me, timeout)

    return Identity(
        rank=number(env, RANK),
        size=number(env, SIZE),
        host=host_name(),
        launcher="torchrun",
        local_rank=number(env, LOCAL_RANK),
        local_size=number(env, LOCAL_SIZE),
        meet=meet,
        found_by=f"{RANK}={env[RANK]} {SIZE}={env[SIZE]} MASTER_ADDR={address}:{port}",
    )


def _open(address: str, port: int, timeout: float) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        return TCPStore(address, port, None, False, timedelta(seconds=timeout), wait_for_workers=False)
    except RuntimeError as error:
        raise StoreError(f"could not reach torchrun's store at {address}:{port}: {error}") from error
