# SPDX-License-Identifier: Apache-2.0
"""The two ways into the engine, for tests that go both."""

from __future__ import annotations

import contextlib
from typing import Iterator

WAYS = ("ctypes", "native")


@contextlib.contextmanager
def calls_by(way: str) -> Iterator[None]:
    """Until the end of the with block, this process calls the engine so."""
    from horovod.common import _calls

    before = {name: getattr(_calls, name) for name in _calls._BY_CTYPES}
    chosen = _calls._BY_CTYPES if way == "ctypes" else {**_calls._BY_CTYPES, **_calls._native_calls()}
    vars(_calls).update(chosen)
    try:
        yield
    finally:
        vars(_calls).update(before)
