# SPDX-License-Identifier: Apache-2.0
"""Two processes that compute for a tf.data service, started once for all tests that use them."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

import world
from tf_worlds import _QUIET


def workers() -> world.World:
    """The world in which they run; it ends with the tests."""
    known = world._shared.get("data service")
    if known is None or known.broken:
        known = world._shared["data service"] = world.World(2, env=_QUIET)
    return known


def compute(*arguments: Any) -> str:
    """One of them: what `python -m horovod.tensorflow.data.compute_worker` does."""
    from horovod.tensorflow.data.compute_worker import main

    main(*arguments)
    return "ended"


@contextlib.contextmanager
def service(path: str, dispatchers: int = 1, side: str = "compute") -> Iterator[None]:
    """A service, described in a file; whoever uses it must end it."""
    serving = workers()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(serving.run, compute, dispatchers, side, path, 240, timeout=300)
        try:
            yield
        except BaseException:
            serving.kill()  # they would wait for an end that nobody asks for any more
            raise
        assert running.result() == ["ended"] * 2
