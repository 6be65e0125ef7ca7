# SPDX-License-Identifier: Apache-2.0
"""What iperf3 gets between two hosts, as the time that an allreduce would take at that speed."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any, Dict, List

from benchmarks.rows import Turn
from benchmarks.team import ContenderFailed
from benchmarks.wires import Hosts

PORT = 5201


class Iperf:
    """One run a turn, with as many streams as there are ranks a host, one way or both ways at once.

    `congestion` is the congestion control; what the system says if it is empty.
    """

    def __init__(
        self,
        hosts: Hosts,
        streams: int,
        size: int,
        seconds: int,
        both_ways: bool = False,
        congestion: str = "",
    ) -> None:
        self._hosts, self._size = hosts, size
        address = hosts.addresses[1]
        self._client = ["iperf3", "-c", address, "-t", str(seconds), "-P", str(streams), "-J"]
        self._client += ["--bidir"] if both_ways else []
        self._client += ["-C", congestion] if congestion else []
        self._both_ways = both_ways

    def warm(self) -> None:
        """The wire needs none."""

    def turn(self) -> Turn:
        """Between two hosts an allreduce sends its bytes once, from each to the other."""
        seconds = self._size / self.rate()
        return Turn([seconds], [seconds])

    def rate(self) -> float:
        """Bytes a second that arrive; both ways at once: in the slower direction."""
        hosts = self._hosts
        server = subprocess.Popen(
            hosts.inside(1, ["iperf3", "-s", "-1"]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _await_listener(hosts, server)
            try:
                done = subprocess.run(
                    hosts.inside(0, self._client), capture_output=True, text=True, timeout=60, check=False
                )
            except subprocess.TimeoutExpired as error:
                raise ContenderFailed("iperf3 did not end within a minute") from error
            said = _parsed(done.stdout)
            if done.returncode or "error" in said:  # which it may call a success
                raise ContenderFailed(f"iperf3: {said.get('error', '')}{done.stderr[-300:]}")
            server.wait(10)
        finally:
            if server.poll() is None:
                server.kill()
                server.wait()
        end = said["end"]
        sums = ["sum_received", "sum_received_bidir_reverse"] if self._both_ways else ["sum_received"]
        return min(float(end[key]["bits_per_second"]) for key in sums) / 8


def _parsed(text: str) -> Dict[str, Any]:
    """What iperf3 -J said, or that it said something else."""
    try:
        said: Dict[str, Any] = json.loads(text)
    except ValueError:
        return {"error": text[-300:]}
    return said


def _await_listener(hosts: Hosts, server: subprocess.Popen[bytes]) -> None:
    """Until somebody listens on iperf3's port in the second host."""
    look: List[str] = hosts.inside(1, ["cat", "/proc/net/tcp", "/proc/net/tcp6"])
    listening = f":{PORT:04X} "
    for _ in range(200):
        table = subprocess.run(look, capture_output=True, text=True, check=False).stdout
        if any(listening in line and " 0A " in line for line in table.splitlines()):
            return
        if server.poll() is not None:
            break
        time.sleep(0.02)
    raise ContenderFailed("iperf3 -s does not listen")
