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

from horovod.runner.identity import Identity
from horovod.runner.readers import own
from horovod.runner.store import StoreClient

FUNCTION = "run/function"
RESULT = "run/result/{}"
ERROR = "run/error/{}"


def main() -> int:
    """Runs the job's function as this rank."""
    import cloudpickle

    me = own.read(os.environ)
    if me is None:
        print("horovod.runner.run_task is started by horovod.run, not by hand", file=sys.stderr)
        return 2
    with _open(me) as store:
        payload = store.get(FUNCTION)
    try:
        function, args, kwargs = cloudpickle.loads(payload)
        result = cloudpickle.dumps(function(*args, **kwargs))
    except Exception as error:
        text = traceback.format_exc()
        print(text, end="", file=sys.stderr, flush=True)
        with _open(me) as store:
            store.set(ERROR.format(me.rank), cloudpickle.dumps((_portable(error), text)))
        return 1
    with _open(me) as store:
        store.set(RESULT.format(me.rank), result)
    return 0


def _open(me: Identity) -> StoreClient:
    return me.open_store(60.0)


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
