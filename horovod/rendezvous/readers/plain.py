# SPDX-License-Identifier: Apache-2.0
"""A plain set of variables, for Kubernetes or any scheduler that can start N copies of a container.

    HOROVOD_SIZE=4   HOROVOD_RANK=3 (or JOB_COMPLETION_INDEX=3, which an Indexed Job sets by itself)
    HOROVOD_MASTER_ADDR=train-0.train   HOROVOD_MASTER_PORT=29400
    _HOROVOD_SECRET_KEY=<base64 of 32 random bytes>, or HOROVOD_SECRET_FILE=/run/secrets/horovod/key

Rank 0 serves the store at that address; the secret comes from a Secret of the cluster. docs/running.md has
complete manifests.
"""

from __future__ import annotations

import hashlib
import os
import socket
from typing import List, Mapping, Optional

from horovod.rendezvous import offers
from horovod.rendezvous.errors import StoreError
from horovod.rendezvous.generations import UNKNOWN
from horovod.rendezvous.identity import Identity, host_name
from horovod.rendezvous.network import can_bind, primary_address
from horovod.rendezvous.readers import number
from horovod.rendezvous.readers.own import SECRET, decode_secret
from horovod.rendezvous.store import StoreClient

ADDRESS, PORT, SIZE = "HOROVOD_MASTER_ADDR", "HOROVOD_MASTER_PORT", "HOROVOD_SIZE"
RANKS = ("HOROVOD_RANK", "JOB_COMPLETION_INDEX")
SECRET_FILE = "HOROVOD_SECRET_FILE"


def read(env: Mapping[str, str]) -> Optional[Identity]:
    """The identity these variables describe."""
    if ADDRESS not in env:
        return None
    rank_name = next((name for name in RANKS if name in env), None)
    missing = [name for name in (PORT, SIZE) if name not in env]
    missing += [] if rank_name else [" or ".join(RANKS)]
    missing += [] if SECRET in env or SECRET_FILE in env else [f"{SECRET} or {SECRET_FILE}"]
    if missing or rank_name is None:
        raise RuntimeError(f"{ADDRESS} is set, but {', '.join(missing)} is not; see docs/running.md")
    address, port, secret = env[ADDRESS], number(env, PORT), _secret(env)
    rank, size = number(env, rank_name), number(env, SIZE)
    job = f"plain {address}:{port}"

    def meet(me: Identity, timeout: float) -> StoreClient:
        if me.group and 0 not in me.group:
            raise StoreError(
                f"hvd.init(comm={list(me.group)}): {ADDRESS} names rank 0, so ranks can meet only in worlds "
                "that rank 0 is part of"
            )
        if rank == 0 and offers.remembered(job) is None:
            offers.serve(job, _own_addresses(address), size, port, secret)
        offer = offers.remembered(job) or offers.Offer([address], port, secret)
        return offer.connect(me, timeout)

    return Identity(
        rank=rank,
        size=size,
        host=host_name(),
        launcher="plain variables",
        local_rank=number(env, "HOROVOD_LOCAL_RANK", UNKNOWN),
        local_size=number(env, "HOROVOD_LOCAL_SIZE", UNKNOWN),
        meet=meet,
        found_by=f"{rank_name}={env[rank_name]} {SIZE}={env[SIZE]} {ADDRESS}={address}:{port}",
    )


def _secret(env: Mapping[str, str]) -> bytes:
    if SECRET in env:
        return decode_secret(env[SECRET])
    with open(env[SECRET_FILE], "rb") as file:
        data = file.read().strip()
    if len(data) < 16:
        raise RuntimeError(f"{env[SECRET_FILE]} holds only {len(data)} bytes; use at least 16 random ones")
    return hashlib.sha256(data).digest()  # any text will do as a secret; the handshake wants bytes


def _own_addresses(address: str) -> List[str]:
    """Those of the name's addresses that are ours; behind a virtual address, the one we route with."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)}
    except OSError:
        found = set()
    own = sorted(one for one in found if can_bind(one))
    return own or [os.environ.get("HOROVOD_POD_IP") or primary_address()]
