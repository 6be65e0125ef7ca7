# SPDX-License-Identifier: Apache-2.0
"""A worker of horovod.run: `python -m horovod.runner.run_task`, with the variables of a rank."""

from __future__ import annotations

import os
import sys

from horovod.common import exit_reason
from horovod.rendezvous.detection import detect
from horovod.rendezvous.errors import StoreError
from horovod.rendezvous.identity import host_name
from horovod.rendezvous.readers import own
from horovod.rendezvous.store import StoreClient
from horovod.runner.results import call_published

# Where the caller's store is when another launcher (mpirun) starts the workers, e.g. "10.0.0.1:40213".
STORE = "HOROVOD_RUN_STORE"


def main() -> int:
    """Runs the job's function as this rank."""
    if STORE not in os.environ and own.ADDRESS not in os.environ:
        print("horovod.runner.run_task is started by horovod.run, not by hand", file=sys.stderr)
        return 2
    try:
        return call_published(_open_store, detect().rank, exit_reason.note)
    except StoreError as error:  # the job has failed, or its launcher is gone
        print(f"horovod.run: StoreError: {error}", file=sys.stderr)
        return 1


def _open_store() -> StoreClient:
    """The caller's store; not as a rank, since the function decides itself when to join the job."""
    address = os.environ.get(STORE) or f"{os.environ[own.ADDRESS]}:{os.environ[own.PORT]}"
    name, _, port = address.rpartition(":")
    secret = own.decode_secret(os.environ[own.SECRET])
    return StoreClient(name, int(port), secret, host=host_name(), timeout=60.0)


if __name__ == "__main__":
    sys.exit(main())
