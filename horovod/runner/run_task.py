# SPDX-License-Identifier: Apache-2.0
"""A worker of horovod.run: `python -m horovod.runner.run_task`, with the variables of a rank."""

from __future__ import annotations

import os
import sys

from horovod.common import exit_reason
from horovod.rendezvous.detection import detect
from horovod.rendezvous.errors import StoreError
from horovod.rendezvous.readers import own
from horovod.rendezvous.store import StoreClient
from horovod.runner.results import call_published


def main() -> int:
    """Runs the job's function as this rank."""
    if own.STORE not in os.environ and own.ADDRESS not in os.environ:
        print("horovod.runner.run_task is started by horovod.run, not by hand", file=sys.stderr)
        return 2
    try:
        me = detect()
        return call_published(_open_store, me.worker or me.rank, exit_reason.note)
    except StoreError as error:  # the job has failed, or its launcher is gone
        print(f"horovod.run: StoreError: {error}", file=sys.stderr)
        return 1


def _open_store() -> StoreClient:
    """The caller's store; not as a rank, since the function decides itself when to join the job."""
    return own.open_store(os.environ)


if __name__ == "__main__":
    sys.exit(main())
