# SPDX-License-Identifier: Apache-2.0
"""Helpers of the launcher tests: running horovodrun as users do, and reading what ranks report."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REPORT = os.path.join(ROOT, "tests", "runner", "scripts", "report.py")
HOROVODRUN = [sys.executable, "-m", "horovod.runner.launch"]

# Variables of whatever launcher runs the tests themselves must not reach the jobs.
_FOREIGN = re.compile(r"^(OMPI_COMM|PMI_|PMIX_|SLURM_|HOROVOD_|RANK$|WORLD_SIZE$|LOCAL_RANK$|TORCHELASTIC)")


def environment(**more: str) -> Dict[str, str]:
    """This process's environment, without a launcher's variables, with the package importable."""
    env = {name: value for name, value in os.environ.items() if not _FOREIGN.match(name)}
    env["PYTHONPATH"] = ROOT
    env.update(more)
    return env


def default_signals() -> None:
    """For preexec_fn: `nohup make test &` must not make a launcher ignore what a test sends it."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)


def horovodrun(
    *words: str, timeout: float = 120, env: Optional[Dict[str, str]] = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs horovodrun to its end."""
    return subprocess.run(
        [*HOROVODRUN, *words], capture_output=True, text=True, timeout=timeout,
        env=env or environment(), check=False, **options,
    )  # fmt: skip


def start_horovodrun(*words: str, **options: Any) -> subprocess.Popen[str]:
    """Starts horovodrun, with signals as a terminal would give them."""
    streams: Dict[str, Any] = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return subprocess.Popen(
        [*HOROVODRUN, *words], text=True, env=environment(),
        **{**streams, "preexec_fn": default_signals, **options},
    )  # fmt: skip


def reports(text: str) -> List[Dict[str, Any]]:
    """What the ranks of report.py printed, whatever their launcher put in front, by round and rank."""
    found = [json.loads(one) for one in re.findall(r"\{\"rank\".*?\}", text)]
    return sorted(found, key=lambda one: (one["round"], one["rank"], one["pid"]))


def alive(pid: int) -> bool:
    """Whether a process still runs (zombies do not)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def still_there(pids: List[int], seconds: float = 60) -> List[int]:
    """Waits for processes to end; returns those that did not, in a time in which any does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(map(alive, pids)):
        time.sleep(0.05)
    return [pid for pid in pids if alive(pid)]


def descendants(pid: int) -> List[int]:
    """A process and everything below it."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                with open(f"/proc/{one}/task/{task}/children", encoding="utf-8") as children:
                    waiting += map(int, children.read().split())
        except OSError:
            pass  # ended meanwhile
    return found


def listening(pids: List[int]) -> Dict[int, str]:
    """TCP ports on which these processes listen, with the address."""
    inodes = set()
    for pid in pids:
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{fd}")
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
        except OSError:
            pass
    ports = {}
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in list(table)[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                address, port = words[1].split(":")
                ports[int(port, 16)] = ".".join(str(b) for b in reversed(bytes.fromhex(address)))
    return ports
