# SPDX-License-Identifier: Apache-2.0
"""horovodrun and horovod.run, or anybody who sets the same variables and serves a store (StoreServer).

HOROVOD_RANK=3   HOROVOD_SIZE=8   HOROVOD_LOCAL_RANK=1   HOROVOD_LOCAL_SIZE=2
HOROVOD_CROSS_RANK=1   HOROVOD_CROSS_SIZE=4   HOROVOD_HOSTNAME=node7
HOROVOD_GLOO_RENDEZVOUS_ADDR=10.0.0.1   HOROVOD_GLOO_RENDEZVOUS_PORT=40213
_HOROVOD_SECRET_KEY=<base64 of 32 bytes>

Optional: HOROVOD_HOST_KEY=<what ranks that share memory have in common>; HOROVOD_HOSTNAME is then for people.
An elastic driver sets HOROVOD_WORKER_ID=<a name that this process keeps> instead of the numbers, which it
gives out anew for each generation of the world (StoreServer.assign); `init` sets them for scripts that look.
"""

from __future__ import annotations

import base64
import binascii
from typing import Dict, Mapping, Optional

from horovod.rendezvous.errors import StoreError
from horovod.rendezvous.generations import UNKNOWN
from horovod.rendezvous.identity import Identity, host_name
from horovod.rendezvous.readers import number
from horovod.rendezvous.store import StoreClient

RANK, SIZE, WORKER = "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_WORKER_ID"
ADDRESS, PORT = "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"
SECRET = "_HOROVOD_SECRET_KEY"
HOST_KEY = "HOROVOD_HOST_KEY"
NUMBERS = (
    RANK, SIZE, "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE",
)  # fmt: skip
# Where our launcher's store is when another one (mpirun) starts the ranks, e.g. "10.0.0.1:40213". They meet
# as that one has them meet; the store is for what they tell our launcher.
STORE = "HOROVOD_RUN_STORE"


def read(env: Mapping[str, str]) -> Optional[Identity]:
    """The identity horovodrun gave this process, if a launcher of ours started it."""
    if ADDRESS not in env:
        # As upstream: rank variables without a rendezvous do not make a job.
        return None
    worker = env.get(WORKER, "")
    for name in (PORT, SECRET) if worker else (RANK, SIZE, PORT, SECRET):
        if name not in env:
            raise RuntimeError(
                f"{ADDRESS} is set but {name} is not; set all of them or none (docs/running.md)"
            )
    address, port, secret = env[ADDRESS], number(env, PORT), decode_secret(env[SECRET])

    def meet(me: Identity, timeout: float) -> StoreClient:
        return StoreClient(address, port, secret, host=me.host, rank=me.rank, timeout=timeout)

    who = f"{WORKER}={worker}" if worker else f"{RANK}={env[RANK]} {SIZE}={env[SIZE]}"
    if worker and RANK in env:  # the numbers are of an earlier world
        env = {name: value for name, value in env.items() if name not in NUMBERS}
    return Identity(
        rank=number(env, RANK, UNKNOWN),
        size=number(env, SIZE, UNKNOWN),
        host=env.get("HOROVOD_HOSTNAME") or host_name(),
        launcher="horovodrun",
        local_rank=number(env, "HOROVOD_LOCAL_RANK", UNKNOWN),
        local_size=number(env, "HOROVOD_LOCAL_SIZE", UNKNOWN),
        cross_rank=number(env, "HOROVOD_CROSS_RANK", UNKNOWN),
        cross_size=number(env, "HOROVOD_CROSS_SIZE", UNKNOWN),
        meet=meet,
        found_by=f"{who} {ADDRESS}={address}:{port}",
        host_key=env.get(HOST_KEY, ""),
        worker=worker,
    )


def variables(place: Mapping[str, int]) -> Dict[str, str]:
    """A place in the world as variables: {"rank": 3, ...} is {"HOROVOD_RANK": "3", ...}."""
    return {f"HOROVOD_{name.upper()}": str(value) for name, value in place.items()}


def open_store(env: Mapping[str, str], timeout: float = 60.0) -> StoreClient:
    """Our launcher's store, not as a rank."""
    name, _, port = (env.get(STORE) or f"{env[ADDRESS]}:{env[PORT]}").rpartition(":")
    secret = decode_secret(env[SECRET])
    return StoreClient(name, int(port), secret, host=host_name(), timeout=timeout)


def decode_secret(text: str) -> bytes:
    """The job's secret from its base64 form."""
    try:
        secret = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise StoreError(f"{SECRET} is not base64 ({error})") from None
    if len(secret) < 16:
        raise StoreError(f"{SECRET} holds only {len(secret)} bytes; use at least 16 random ones")
    return secret


def encode_secret(secret: bytes) -> str:
    """The job's secret as it travels in the environment."""
    return base64.b64encode(secret).decode()
