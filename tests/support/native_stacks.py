# SPDX-License-Identifier: Apache-2.0
"""Where the native threads of a process are that are in our engine, if there is a gdb to ask."""

from __future__ import annotations

import re
import shutil
import subprocess

LIBRARY = "horovod/_lib/"


def native_stacks(pid: int) -> str:
    """The stacks of a process's threads that have something of ours in them; "" without gdb."""
    gdb = shutil.which("gdb")
    if gdb is None:
        return ""
    command = [gdb, "-batch", "-nx", "-p", str(pid), "-ex", "thread apply all bt 40"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        return "(gdb did not answer)"
    return threads_of_ours(done.stdout)


def threads_of_ours(text: str) -> str:
    """Those blocks of gdb's output, "Thread 3 (...)" and its frames, that name our library."""
    blocks = re.findall(r"^Thread \d+ .*\n(?:#.*\n?)*", text, re.MULTILINE)
    return "\n".join(block.strip() for block in blocks if LIBRARY in block)
