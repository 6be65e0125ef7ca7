# SPDX-License-Identifier: Apache-2.0
"""Two hosts made of network namespaces: the allreduce between them beside iperf3 over the same wire.

    host A 10.77.0.2 --- bridge 10.77.0.1 --- host B 10.77.0.3

Needs root, iproute2 and iperf3. The wire is unlimited first (then the CPU is the limit), and slowed down to
1 Gbit/s after that (then the wire is). Gloo goes over the same wire.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence

from benchmarks.environments import ROOT
from benchmarks.harness import WORKER, Team, size_text, take_turns, time_text

BRIDGE = "hvdbench"
HOSTS = {"hvdbencha": "10.77.0.2", "hvdbenchb": "10.77.0.3"}
ADDRESS = "10.77.0.1"


def missing() -> Optional[str]:
    """Why this machine cannot run it."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    absent = [tool for tool in ("ip", "tc", "iperf3") if shutil.which(tool) is None]
    return f"{', '.join(absent)} not installed (packages iproute2, iperf3)" if absent else None


def ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True)


class Wire:
    """The namespaces and the bridge between them, while the with block lasts."""

    def __enter__(self) -> Wire:
        self.__exit__()
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{ADDRESS}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for host, address in HOSTS.items():
            ip("netns", "add", host)
            ip("link", "add", host, "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("link", "set", host, "master", BRIDGE, "up")
            ip("-n", host, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "eth0", "up")
            ip("-n", host, "link", "set", "lo", "up")
        return self

    def __exit__(self, *error: object) -> None:
        for host in HOSTS:
            ip("netns", "del", host, check=False)
            ip("link", "del", host, check=False)
        ip("link", "del", BRIDGE, check=False)

    def limit(self, rate: str) -> None:
        """Both directions of both hosts, e.g. 1gbit."""
        for host in HOSTS:
            shape = [
                "tc",
                "qdisc",
                "replace",
                "dev",
                "eth0",
                "root",
                "tbf",
                "rate",
                rate,
                "burst",
                "256kb",
                "latency",
                "50ms",
            ]
            subprocess.run(["ip", "netns", "exec", host, *shape], check=True)


def inside(host: str, command: Sequence[str]) -> List[str]:
    return ["ip", "netns", "exec", host, *command]


def line_rate(seconds: int) -> float:
    """What one iperf3 stream gets from A to B, in bytes a second."""
    a, b = HOSTS
    server = subprocess.Popen(inside(b, ["iperf3", "-s", "-1"]), stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        client = inside(a, ["iperf3", "-c", HOSTS[b], "-t", str(seconds), "-J"])
        report = json.loads(subprocess.run(client, check=True, capture_output=True, text=True).stdout)
    finally:
        server.wait(10)
    return float(report["end"]["sum_received"]["bits_per_second"]) / 8


def gloo_team(per_host: int) -> Team:
    first = next(iter(HOSTS.values()))
    commands = []
    size = 2 * per_host
    for rank in range(size):
        host = list(HOSTS)[rank // per_host]
        env = [
            f"RANK={rank}",
            f"WORLD_SIZE={size}",
            f"MASTER_ADDR={first}",
            "MASTER_PORT=29555",
            "GLOO_SOCKET_IFNAME=eth0",
        ]
        commands.append(inside(host, ["env", *env, sys.executable, WORKER, "gloo"]))
    return Team("gloo", size, commands, {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})


def horovod_teams(per_host: int) -> Iterator[Team]:
    """One team, with the store that a launcher would hold."""
    from horovod.rendezvous.store_server import StoreServer

    secret = secrets.token_bytes(32)
    size = 2 * per_host
    server = StoreServer(secret, addresses=[ADDRESS], size=size)
    try:
        commands = []
        for rank in range(size):
            cross, local = divmod(rank, per_host)
            host = list(HOSTS)[cross]
            env = {
                "HOROVOD_RANK": rank,
                "HOROVOD_SIZE": size,
                "HOROVOD_HOSTNAME": host,
                "HOROVOD_LOCAL_RANK": local,
                "HOROVOD_LOCAL_SIZE": per_host,
                "HOROVOD_CROSS_RANK": cross,
                "HOROVOD_CROSS_SIZE": 2,
                "HOROVOD_GLOO_RENDEZVOUS_ADDR": ADDRESS,
                "HOROVOD_GLOO_RENDEZVOUS_PORT": server.port,
                "_HOROVOD_SECRET_KEY": base64.b64encode(secret).decode(),
            }
            pairs = [f"{key}={value}" for key, value in env.items()]
            commands.append(inside(host, ["env", *pairs, sys.executable, WORKER, "horovod"]))
        yield Team("horovod", size, commands, {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    finally:
        server.close()


def measure(per_host: int, sizes: Sequence[int], quick: bool) -> Dict[str, Any]:
    """{bytes: {contender: {...}}} over the wire as it is."""
    rows: Dict[str, Any] = {}
    for ours in horovod_teams(per_host):
        teams = {"horovod": ours}
        try:
            teams["gloo"] = gloo_team(per_host)
            for size in sizes:
                inner = 20 if size <= 64 << 10 else 1
                rounds = 2 if quick else 4
                rows[str(size)] = take_turns(teams, rounds, "allreduce", bytes=size, reps=3, inner=inner)
        finally:
            for team in teams.values():
                team.close()
    return rows


def run(quick: bool = False) -> Dict[str, Any]:
    """{wire: {"line_rate": bytes a second, ranks a host: {bytes: ...}}}"""
    reason = missing()
    if reason is not None:
        print(f"benchmarks: without two hosts: {reason}", file=sys.stderr)
        return {}
    result: Dict[str, Any] = {}
    with Wire() as wire:
        for rate in ("unlimited",) if quick else ("unlimited", "1gbit"):
            if rate != "unlimited":
                wire.limit(rate)
            speed = line_rate(1 if quick else 3)
            result[rate] = {"line_rate": speed}
            print(f"\ntwo hosts, wire {rate}: iperf3 {speed / 1e6:.0f} MB/s")
            for per_host in (1,) if quick else (1, 2):
                sizes = [4, 1 << 20] if quick else [4, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
                rows = measure(per_host, sizes, quick)
                result[rate][str(per_host)] = rows
                show(per_host, rows, speed)
    return result


def show(per_host: int, rows: Dict[str, Any], speed: float) -> None:
    """Times, and for large sizes the part of the line rate they reach: each host sends its bytes once."""
    for size, row in rows.items():
        cells = []
        for name, s in row.items():
            rate = int(size) / s["median_us"] * 1e6 / speed
            part = f" ({rate:.0%} of iperf3)" if int(size) >= 1 << 20 else ""
            cells.append(f"{name} {time_text(s['median_us'])}{part}")
        print(f"  {per_host} a host {size_text(int(size)):>8}  " + "   ".join(cells), flush=True)
