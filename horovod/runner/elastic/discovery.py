# SPDX-License-Identifier: Apache-2.0
"""Which hosts may be used now. Another source of hosts is one class with one method."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from typing import Dict, Mapping, Optional

from horovod.runner.hosts import HostInfo

# How often a driver asks.
DISCOVER_HOSTS_FREQUENCY_SECS = 1.0
# A script that takes longer than this is stuck; it is ended and asked again.
_SCRIPT_SECONDS = 60.0


class HostDiscovery:
    """Knows which hosts are available at the moment."""

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        """The hosts, each with how many ranks it may run, e.g. {"node1": 4, "node2": 4}.

        Asked about once a second, on a thread of its own. What it raises is told to the user and asked again,
        the first time aside, which ends the job.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Ends what asking has started; called on any thread when a job ends. The next may ask again."""


class FixedHosts(HostDiscovery):
    """Hosts known from the start; `set` replaces them, from any thread."""

    def __init__(self, host_slots: Mapping[str, int]) -> None:
        self._host_slots = dict(host_slots)

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        return dict(self._host_slots)

    def set(self, host_slots: Mapping[str, int]) -> None:
        """From now on these are the hosts."""
        self._host_slots = dict(host_slots)


class HostDiscoveryScript(HostDiscovery):
    """A command that prints a line "host:slots", or "host", for each host.

    It has a process group of its own, so that all that it has started can be ended.

    Args:
        discovery_script: run by the shell.
        slots: of hosts that are printed without.
    """

    def __init__(self, discovery_script: str, slots: Optional[int] = None) -> None:
        self._script = discovery_script
        self._slots = slots
        self._running: Optional[subprocess.Popen[bytes]] = None
        self._lock = threading.Lock()

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        found: Dict[str, int] = {}
        for line in self._printed().decode(errors="replace").splitlines():
            if line.strip():
                info = self._parse(line.strip())
                found[info.hostname] = max(info.slots, found.get(info.hostname, 0))
        return found

    def close(self) -> None:
        """Kills the script if it runs, with all that it has started."""
        with self._lock:
            if self._running is not None and self._running.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._running.pid, signal.SIGKILL)

    def _printed(self) -> bytes:
        with self._lock:
            self._running = subprocess.Popen(
                self._script, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        with self._running as script:
            try:
                printed, _ = script.communicate(timeout=_SCRIPT_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise RuntimeError(
                    f"Failed to execute discovery script: {self._script}. It took longer than "
                    f"{_SCRIPT_SECONDS:g} s"
                ) from error
            finally:
                self.close()
        if script.returncode != 0:
            raise RuntimeError(
                f"Failed to execute discovery script: {self._script}. Exit code: {script.returncode}"
            )
        return printed

    def _parse(self, line: str) -> HostInfo:
        if ":" in line.rpartition("]")[2]:
            return HostInfo.from_string(line)
        if self._slots is None:
            raise ValueError(
                f"the discovery script printed {line!r} without slots: print {line}:4, or give "
                "--slots-per-host"
            )
        return HostInfo(line.strip("[]"), self._slots)
