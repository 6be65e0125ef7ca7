# SPDX-License-Identifier: Apache-2.0
"""Meeting through a private file in a folder that all hosts of the job share, usually the home directory.

Rank 0 writes where its store is, and the secret, into a file that only this user can read (mode 0600); the
others wait for it, and once all have read it, it is gone. So the secret is exactly as private as the user's
home directory (and, on NFS, as the network it is mounted over). HOROVOD_RENDEZVOUS_DIR names another shared
folder.
"""

from __future__ import annotations

import atexit
import os
import re
import secrets
import stat
import time
from typing import Callable, Optional

from horovod.rendezvous import offers
from horovod.rendezvous.errors import StoreError, StoreRefused, StoreTimeout
from horovod.rendezvous.identity import Identity
from horovod.rendezvous.network import loopback, primary_address
from horovod.rendezvous.store import StoreClient

FOLDER_VARIABLE = "HOROVOD_RENDEZVOUS_DIR"


def meet_by_file(
    job: str, one_host: bool, root_host: Optional[str] = None
) -> Callable[[Identity, float], StoreClient]:
    """A meet function.

    job: a name that no other job of this user has, e.g. "slurm-1234.0".
    one_host: all ranks run on one machine: the loopback interface and a local folder are enough.
    root_host: a host to be reached, to choose the right address of rank 0.
    """

    def meet(me: Identity, timeout: float) -> StoreClient:
        name = offers.name_of(job, me)
        offer = offers.remembered(name)
        if offer is not None:
            return offer.connect(me, timeout)
        path = os.path.join(_folder(), re.sub(r"[^\w.@-]", "_", name))
        if me.rank == 0:
            address = loopback() if one_host else primary_address(root_host)
            return _invite(name, path, address, me.size).connect(me, timeout)
        return _wait_for(path, name, me, timeout)

    return meet


def _folder() -> str:
    folder = os.environ.get(FOLDER_VARIABLE) or os.path.join(
        os.path.expanduser("~"), ".horovod", "rendezvous"
    )
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def _invite(name: str, path: str, address: str, size: int) -> offers.Offer:
    """Serves the store and leaves the file, until all ranks have come."""
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:
            try:
                os.unlink(path)
            except OSError:
                pass  # gone already

    offer = offers.serve(
        name, [address], size, on_event=lambda event: remove() if event.kind == "complete" else None
    )
    _write_private(path, offer.to_bytes())
    atexit.register(remove)
    return offer


def _write_private(path: str, data: bytes) -> None:
    """Writes a file that nobody else may read, complete from the moment it exists."""
    new = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except BaseException:
        os.unlink(new)
        raise


def _wait_for(path: str, name: str, me: Identity, timeout: float) -> StoreClient:
    """Waits for rank 0's file; an old file of a requeued job leads nowhere, so keeps looking then."""
    deadline = time.monotonic() + timeout
    refused: Optional[Exception] = None
    while time.monotonic() < deadline:
        data = _read_private(path)
        if data is not None:
            offer = offers.Offer.from_bytes(data)
            try:
                client = offer.connect(me, min(2.0, timeout))
                offers.remember(name, offer)
                return client
            except (StoreTimeout, StoreRefused) as error:
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
