# SPDX-License-Identifier: Apache-2.0
"""What the numbers were measured on, and with which sources."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from pathlib import Path
from typing import Any, Dict, Mapping

from benchmarks.environments import ROOT


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0))


def facts() -> Dict[str, Any]:
    """The machine."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "cores": cores(),
        "memory_gib": round(memory / 2**30),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def text(machine: Mapping[str, Any]) -> str:
    """2 cores, AMD EPYC, Linux 6.1"""
    kernel = ".".join(str(machine["kernel"]).split(".")[:2])
    return f"{machine['cores']} cores, {machine['cpu']}, Linux {kernel}"


def sources() -> Dict[str, Any]:
    """The commit, whether the tree differs from it, and the engine that was measured."""
    library = Path(os.environ.get("HOROVOD_CORE_LIBRARY") or ROOT / "horovod/_lib/libhorovod_core.so")
    engine = hashlib.sha256(library.read_bytes()).hexdigest()[:12] if library.exists() else ""
    return {
        "commit": _git("rev-parse", "HEAD") or "unknown",
        "subject": _git("log", "-1", "--format=%s"),
        "dirty": bool(_git("status", "--porcelain")),
        "engine": engine,
    }


def commit_of(name: str) -> str:
    """The commit that a branch, tag or abbreviation means; nothing if it means none."""
    return _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")


def _git(*words: str) -> str:
    """What git says; nothing where the sources are no repository."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
