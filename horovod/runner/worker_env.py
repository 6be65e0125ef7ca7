# SPDX-License-Identifier: Apache-2.0
"""The environment of a worker: what makes a process a rank (horovod/rendezvous/readers/own.py reads it).

    env = worker_env(os.environ, slot, "10.0.0.1", 40213, secret)
    subprocess.Popen(["python", "train.py"], env=env)      # is rank slot.rank of the job

Anybody who starts ranks uses this: horovodrun, horovod.run, Ray actors, Spark tasks.
"""

from __future__ import annotations

import re
from typing import Dict, Mapping, Optional, Sequence

from horovod.rendezvous.readers import own
from horovod.runner.placement import SlotInfo

# Variables that describe this machine or session rather than the job.
_LOCAL_ONLY = re.compile(
    r"^(BASH_FUNC_.*|OLDPWD|PWD|HOSTNAME|SHLVL|_|SSH_.*|XDG_.*|DBUS_.*|DISPLAY|.*CUDA_VISIBLE_DEVICES)$"
)


def is_exportable(name: str) -> bool:
    """Whether a variable of the launcher's environment is sent to other hosts."""
    return _LOCAL_ONLY.match(name) is None


def worker_env(
    base: Mapping[str, str],
    slot: SlotInfo,
    address: str,
    port: int,
    secret: bytes,
    nics: Optional[Sequence[str]] = None,
) -> Dict[str, str]:
    """The environment of one rank.

    Args:
        base: what it starts from, usually the launcher's environment with the settings of the job.
        slot: who the rank is.
        address, port: the job's store, as seen from the rank's host.
        secret: the job's secret.
        nics: interfaces the user chose for the traffic between hosts.
    """
    env = _job_env(base, slot.hostname, address, port, secret, nics)
    env.update(
        {own.RANK: str(slot.rank), own.SIZE: str(slot.size)},
        HOROVOD_LOCAL_RANK=str(slot.local_rank),
        HOROVOD_LOCAL_SIZE=str(slot.local_size),
        HOROVOD_CROSS_RANK=str(slot.cross_rank),
        HOROVOD_CROSS_SIZE=str(slot.cross_size),
    )
    return env


def elastic_worker_env(
    base: Mapping[str, str],
    name: str,
    host: str,
    slot: int,
    address: str,
    port: int,
    secret: bytes,
    nics: Optional[Sequence[str]] = None,
) -> Dict[str, str]:
    """The environment of a worker of an elastic job, which learns its rank at every hvd.init().

    Args:
        name: by which the job's store knows it; a new process needs a new one.
        host, slot: where it runs. The slot is what its local rank is while the host is full.
        base, address, port, secret, nics: as for `worker_env`.
    """
    env = _job_env(base, host, address, port, secret, nics)
    for number in own.NUMBERS:
        env.pop(number, None)
    env.update({own.WORKER: name}, HOROVOD_LOCAL_RANK=str(slot), HOROVOD_ELASTIC="1")
    return env


def _job_env(
    base: Mapping[str, str], host: str, address: str, port: int, secret: bytes, nics: Optional[Sequence[str]]
) -> Dict[str, str]:
    env = dict(base)
    if nics:
        env["HOROVOD_GLOO_IFACE"] = nics[0]
        env.setdefault("NCCL_SOCKET_IFNAME", ",".join(nics))
    env.setdefault("HOROVOD_CPU_OPERATIONS", "gloo")
    env.update(
        {own.ADDRESS: address, own.PORT: str(port), own.SECRET: own.encode_secret(secret)},
        HOROVOD_HOSTNAME=host,
        HOROVOD_CONTROLLER="gloo",
        PYTHONUNBUFFERED="1",
    )
    return env
