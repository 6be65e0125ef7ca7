# SPDX-License-Identifier: Apache-2.0
"""Hosts made of network namespaces, each with one wire to a common switch, on this machine.

    host 0  10.161.5.2 ---\
    host 1  10.161.5.3 ----- bridge 10.161.5.1
    ...

Needs root, iproute2 and iperf3. `rate` slows both directions of every wire down, e.g. "1gbit"; otherwise the
CPU is the limit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import List, Optional, Sequence

_AGENT = """#!/bin/sh
# In place of ssh, for mpirun: AGENT [options] ADDRESS COMMAND...
while [ "${{1#-}}" != "$1" ]; do shift; done
host=${{1##*.}}; shift
exec ip netns exec "{prefix}$host" unshare --uts sh -c "hostname {prefix}$host; $*"
"""


def why_not() -> Optional[str]:
    """Why such hosts cannot be made here, or None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [tool for tool in ("ip", "tc", "iperf3", "unshare") if shutil.which(tool) is None]
    if absent:
        return f"{', '.join(absent)} not installed (packages iproute2, iperf3, util-linux)"
    probe = f"hvdw{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        return f"ip netns add: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=False)
    return None


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hosts:
    """The hosts and their switch, while the with block lasts."""

    def __init__(self, count: int, rate: str = "") -> None:
        # Names and addresses of its own, so that two runs do not meet.
        tag = os.getpid() % 10000
        self.network = f"10.{160 + tag // 250}.{tag % 250}"
        self.switch = f"{self.network}.1"
        self.addresses = [f"{self.network}.{i + 2}" for i in range(count)]
        self.rate = rate
        self._prefix = f"hvdw{tag}x"
        self._bridge = f"hvdwb{tag}"
        self._spaces = [f"{self._prefix}{i + 2}" for i in range(count)]
        self.folder = Path(tempfile.mkdtemp(prefix="hvd-bench-wires-"))

    def __enter__(self) -> Hosts:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.switch}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for space, address in zip(self._spaces, self.addresses):
            _ip("netns", "add", space)
            _ip("link", "add", space, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", space, "master", self._bridge, "up")
            _ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
            if self.rate:
                shape = ["root", "tbf", "rate", self.rate, "burst", "256kb", "latency", "50ms"]
                tc = ["tc", "qdisc", "replace", "dev"]
                subprocess.run([*self._enter(space), *tc, "eth0", *shape], check=True)  # what it sends
                subprocess.run([*tc, space, *shape], check=True)  # what it receives

    def __exit__(self, *error: object) -> None:
        for space in self._spaces:
            for words in (["netns", "del", space], ["link", "del", space]):
                subprocess.run(["ip", *words], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def name(self, host: int) -> str:
        """The host's name."""
        return self._spaces[host]

    def sent(self, host: int) -> int:
        """Bytes the host has put on its wire so far."""
        return int(Path(f"/sys/class/net/{self._spaces[host]}/statistics/rx_bytes").read_text())

    def inside(self, host: int, command: Sequence[str]) -> List[str]:
        """A command that runs on a host, under its name."""
        named = f'hostname {self._spaces[host]}; exec "$@"'
        return [*self._enter(self._spaces[host]), "unshare", "--uts", "sh", "-c", named, "sh", *command]

    @staticmethod
    def _enter(space: str) -> List[str]:
        return ["ip", "netns", "exec", space]

    def agent(self) -> str:
        """A program that mpirun can call as it calls ssh."""
        path = self.folder / "agent"
        path.write_text(_AGENT.format(prefix=self._prefix))
        path.chmod(0o755)
        return str(path)

    @property
    def bridge(self) -> str:
        """The interface of this machine that leads to the hosts."""
        return self._bridge
