# SPDX-License-Identifier: Apache-2.0
"""Meeting through a private file in a folder that all hosts of the job share, usually the home directory.

Rank 0 writes where its store is, and the secret, into a file that only this user can read (mode 0600); the
others wait for it. So the secret is exactly as private as the user's home directory (and, on NFS, as the
network it is mounted over). HOROVOD_RENDEZVOUS_DIR names another shared folder.
"""

from __future__ import annotations

import atexit
import os
import re
import stat
import time
from typing import Any, List, Optional

from horovod.rendezvous import offers
from horovod.rendezvous.identity import Identity
from horovod.rendezvous.store import StoreClient, StoreError, StoreTimeout

FOLDER_VARIABLE = "HOROVOD_RENDEZVOUS_DIR"


def meet_by_file(job: str, one_host: bool, root_host: Optional[str] = None) -> Any:
    """A meet function.

    job: a name that no other job of this user has, e.g. "slurm-1234.0".
    one_host: all ranks run on one machine: the loopback interface and a local folder are enough.
    root_host: a host to be reached, to choose the right address of rank 0.
    """

    def meet(me: Identity, timeout: float) -> StoreClient:
        offer = offers.remembered(job)
        if offer is not None:
            return offer.connect(me, timeout)
        path = os.path.join(_folder(), re.sub(r"[^\w.@-]", "_", job))
        if me.rank == 0:
            addresses = ["127.0.0.1"] if one_host else _addresses(root_host)
            offer = offers.serve(job, addresses, me.size)
            _write_private(path, offer.to_bytes())
            return offer.connect(me, timeout)
        return _wait_for(path, job, me, timeout)

    return meet


def _addresses(root_host: Optional[str]) -> List[str]:
    return [offers.primary_address(root_host)]


def _folder() -> str:
    folder = os.environ.get(FOLDER_VARIABLE) or os.path.join(
        os.path.expanduser("~"), ".horovod", "rendezvous"
    )
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def _write_private(path: str, data: bytes) -> None:
    """Writes a file that nobody else may read, complete from the moment it exists."""
    new = f"{path}.{os.getpid()}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    os.replace(new, path)
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            try:
                os.unlink(path)
            except OSError:
                pass

    atexit.register(remove)


def _wait_for(path: str, job: str, me: Identity, timeout: float) -> StoreClient:
    """Waits for rank 0's file; an old file of a requeued job leads nowhere, so keeps looking then."""
    deadline = time.monotonic() + timeout
    refused: Optional[Exception] = None
    while time.monotonic() < deadline:
        data = _read_private(path)
        if data is not None:
            offer = offers.Offer.from_bytes(data)
            try:
                client = offer.connect(me, min(5.0, timeout))
                offers.remember(job, offer)
                return client
            except StoreTimeout as error:
                refused = error
            except StoreError as error:
                if "secret" not in str(error):
                    raise
                refused = error
        time.sleep(0.05)
    if refused is not None:
        raise StoreTimeout(f"rank 0 left {path}, but could not be reached: {refused}")
    raise StoreTimeout(
        f"rank {me.rank} on {me.host} waited {timeout:g} s for rank 0 to leave {path}. Either rank 0 has not "
        f"called hvd.init(), or the hosts do not share that folder: set {FOLDER_VARIABLE} to one they share"
    )


def _read_private(path: str) -> Optional[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if info.st_uid != os.getuid() or stat.S_IMODE(info.st_mode) & 0o077:
            raise StoreError(f"{path} is not this user's private file; somebody else may have put it there")
        return file.read(65536)
