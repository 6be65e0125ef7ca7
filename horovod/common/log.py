# SPDX-License-Identifier: Apache-2.0
"""Log lines of the Python side, in the engine's format and under the same HOROVOD_LOG_LEVEL.

log.info("gradients of %s are sent as dense ones", name)
[2026-01-31 12:00:00.000042: I _sparse.py:81] [3]: gradients of embedding.weight are sent as dense ones
"""

from __future__ import annotations

import logging
import sys

from horovod.common import config
from horovod.common.basics import basics

_LEVELS = {
    "trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING,
    "error": logging.ERROR, "fatal": logging.CRITICAL,
}  # fmt: skip


class _EngineFormat(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = ""
        if not config.get("log_hide_time"):
            microseconds = int(record.created % 1 * 1e6)
            time = f"{self.formatTime(record, '%Y-%m-%d %H:%M:%S')}.{microseconds:06d}: "
        rank = f"[{basics.rank()}]: " if basics.is_initialized() else ""
        where = f"{record.levelname[0]} {record.filename}:{record.lineno}"
        return f"[{time}{where}] {rank}{record.getMessage()}"


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]  # not subscriptable before Python 3.11
    """Writes to whatever sys.stderr is at the time; leaves it to an application that logs itself."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self.stream = sys.stderr
            super().emit(record)


log = logging.getLogger("horovod")
if not any(isinstance(handler, _Handler) for handler in log.handlers):
    log.setLevel(_LEVELS.get(str(config.get("log_level")).lower(), logging.WARNING))
    _handler = _Handler()
    _handler.setFormatter(_EngineFormat())
    log.addHandler(_handler)
