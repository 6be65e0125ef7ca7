# SPDX-License-Identifier: Apache-2.0
"""Starting jobs: `horovodrun` (horovod.runner.launch) and, from Python, `horovod.run`."""

from __future__ import annotations

from horovod.runner.results import RemoteTraceback
from horovod.runner.run_function import run

__all__ = ["RemoteTraceback", "run"]
