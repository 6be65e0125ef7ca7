# SPDX-License-Identifier: Apache-2.0
"""Which hosts may be used now. Another source of hosts is one class with one method."""

from __future__ import annotations

import subprocess
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

    Args:
        discovery_script: run by the shell.
        slots: of hosts that are printed without.
    """

    def __init__(self, discovery_script: str, slots: Optional[int] = None) -> None:
        self._script = discovery_script
        self._slots = slots

    def find_available_hosts_and_slots(self) -> Dict[str, int]:
        try:
            done = subprocess.run(
                self._script, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                timeout=_SCRIPT_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(
                f"Failed to execute discovery script: {self._script}. It took longer than "
                f"{_SCRIPT_SECONDS:g} s"
            ) from error
        if done.returncode != 0:
            raise RuntimeError(
                f"Failed to execute discovery script: {self._script}. Exit code: {done.returncode}"
            )
        found: Dict[str, int] = {}
        for line in done.stdout.decode(errors="replace").splitlines():
            if line.strip():
                info = self._parse(line.strip())
                found[info.hostname] = max(info.slots, found.get(info.hostname, 0))
        return found

    def _parse(self, line: str) -> HostInfo:
        if ":" in line.rpartition("]")[2]:
            return HostInfo.from_string(line)
        if self._slots is None:
            raise ValueError(
                f"the discovery script printed {line!r} without slots: print {line}:4, or give "
                "--slots-per-host"
            )
        return HostInfo(line.strip("[]"), self._slots)
