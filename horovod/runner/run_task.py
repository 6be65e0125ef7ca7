# SPDX-License-Identifier: Apache-2.0
"""A worker of horovod.run: fetches the function, calls it, hands the result (or the exception) back.

The function and the results are pickles, but they only travel between processes that proved the job's
secret to each other; nothing is unpickled from anybody else.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

from horovod.common import exit_reason
from horovod.rendezvous.detection import detect
from horovod.rendezvous.identity import host_name
from horovod.rendezvous.readers import own
from horovod.rendezvous.store import StoreClient

FUNCTION = "run/function"
RESULT = "run/result/{}"
ERROR = "run/error/{}"
# Where the caller's store is when another launcher (mpirun) starts the workers, e.g. "10.0.0.1:40213".
STORE = "HOROVOD_RUN_STORE"


def main() -> int:
    """Runs the job's function as this rank."""
    import cloudpickle

    if STORE not in os.environ and own.ADDRESS not in os.environ:
        print("horovod.runner.run_task is started by horovod.run, not by hand", file=sys.stderr)
        return 2
    rank = detect().rank
    with _open(rank) as store:
        payload = store.get(FUNCTION)
    try:
        function, args, kwargs = cloudpickle.loads(payload)
        result = cloudpickle.dumps(function(*args, **kwargs))
    except Exception as error:
        exit_reason.note(error)
        text = traceback.format_exc()
        print(text, end="", file=sys.stderr, flush=True)
        with _open(rank) as store:
            store.set(ERROR.format(rank), cloudpickle.dumps((_portable(error), text)))
        return 1
    with _open(rank) as store:
        store.set(RESULT.format(rank), result)
    return 0


def _open(rank: int) -> StoreClient:
    """The caller's store; not as a rank, since the function decides itself when to join the job."""
    address = os.environ.get(STORE) or f"{os.environ[own.ADDRESS]}:{os.environ[own.PORT]}"
    name, _, port = address.rpartition(":")
    secret = own.decode_secret(os.environ[own.SECRET])
    return StoreClient(name, int(port), secret, host=host_name(), timeout=60.0)


def _portable(error: BaseException) -> Any:
    """The exception, or None if it cannot travel (its text always can)."""
    import cloudpickle

    try:
        cloudpickle.loads(cloudpickle.dumps(error))
        return error
    except Exception:
        return None


if __name__ == "__main__":
    sys.exit(main())
