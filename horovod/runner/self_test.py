# SPDX-License-Identifier: Apache-2.0
"""horovodrun --check: a short self-test of a job on the given hosts.

Runs as every rank (by hand: mpirun -np 4 python -m horovod.runner.self_test). Rank 0 reports who is
there and how they were found, over which addresses and transports they talk, how fast, and what could be
better. --output FILE keeps what was measured, for horovodrun --report.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import socket
import sys
import time
from typing import Any, Dict, List, Optional, Sequence

from horovod.runner.measured import Measured

_SMALL, _LARGE = 4, 16 << 20
_REPEATS = {_SMALL: 200, 64 << 10: 50, 1 << 20: 20, _LARGE: 5}  # how often each size is measured


def command(output: Optional[str] = None) -> List[str]:
    """What horovodrun starts for --check."""
    keep = ["--output", os.path.abspath(output)] if output else []
    return [sys.executable, "-m", "horovod.runner.self_test", *keep]


def default_num_proc() -> int:
    """How many ranks to test when the user does not say."""
    return 2


def main(argv: Optional[Sequence[str]] = None) -> int:
    """One rank of the self-test."""
    parser = argparse.ArgumentParser(prog="python -m horovod.runner.self_test")
    parser.add_argument("--output", metavar="FILE", help="where rank 0 keeps what was measured")
    output = parser.parse_args(argv).output
    from horovod.common.basics import basics
    from horovod.common.objects import allgather_object
    from horovod.rendezvous.detection import detect
    from horovod.runner import gpu_check

    identity = detect()
    started = time.monotonic()
    basics.init()
    facts = {
        "rank": basics.rank(),
        "local_rank": basics.local_rank(),
        "host": identity.host,
        "machine": socket.gethostname(),
        "launcher": identity.launcher,
        "found_by": identity.found_by,
        "init_ms": (time.monotonic() - started) * 1e3,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "address": _address(),
    }
    everybody = allgather_object(facts, name="self_test.facts")
    right = _reduces_right(basics.rank(), basics.size())
    times = {nbytes: _seconds_per_allreduce(nbytes, repeats) for nbytes, repeats in _REPEATS.items()}
    wrong = [rank for rank, ok in enumerate(allgather_object(right, name="self_test.right")) if not ok]
    gpus = gpu_check.lines()
    if basics.rank() == 0:
        print(report(everybody, times[_SMALL], times[_LARGE], wrong, gpus), flush=True)
        if output:
            hosts = list(dict.fromkeys(str(one["host"]) for one in everybody))
            Measured(len(everybody), hosts, sorted(times.items())).write(output)
    basics.shutdown()
    return 1 if wrong else 0


def report(
    everybody: List[Dict[str, Any]], latency: float, large: float, wrong: List[int], gpus: Sequence[str] = ()
) -> str:
    """What rank 0 prints."""
    hosts: Dict[str, List[Dict[str, Any]]] = {}
    for one in everybody:
        hosts.setdefault(one["host"], []).append(one)
    on = "1 host" if len(hosts) == 1 else f"{len(hosts)} hosts"
    lines = [f"{len(everybody)} ranks on {on}, found by {everybody[0]['launcher']}"]
    lines.append(f"rank 0: {everybody[0]['found_by']}")
    for host, ranks in hosts.items():
        numbers = ", ".join(str(one["rank"]) for one in ranks)
        first = ranks[0]
        lines.append(f"host {host}: ranks {numbers}; address {first['address']}; {first['cores']} cores")
    lines.append(f"transports: {_transports(hosts)}")
    lines.append(f"hvd.init() took {max(one['init_ms'] for one in everybody):.0f} ms at most")
    lines.append(f"allreduce of {_SMALL} bytes: {latency * 1e6:.1f} us")
    lines.append(f"allreduce of {_LARGE >> 20} MiB: {large * 1e3:.1f} ms ({_LARGE / large / 1e9:.2f} GB/s)")
    lines += gpus
    lines += _advice(hosts, large)
    verdict = f"FAILED: wrong sums on ranks {wrong}" if wrong else "all results are right"
    return "\n  ".join(lines) + "\n" + verdict


def _transports(hosts: Dict[str, List[Dict[str, Any]]]) -> str:
    shares = any(len(ranks) > 1 for ranks in hosts.values())
    within = "shared memory within a host" if shares else "one rank a host"
    if len(hosts) == 1:
        return within
    between = "MPI" if os.environ.get("HOROVOD_CPU_OPERATIONS", "").lower() == "mpi" else "TCP"
    return f"{within}, {between} between hosts"


def _advice(hosts: Dict[str, List[Dict[str, Any]]], large: float) -> List[str]:
    lines = []
    for host, ranks in hosts.items():
        cores = ranks[0]["cores"]
        if len(ranks) > cores:
            lines.append(
                f"advice: {host} runs {len(ranks)} ranks on {cores} cores; use at most one rank a core"
            )
    if len(hosts) > 1 and _LARGE / large < 100e6:
        lines.append(
            "advice: less than 0.1 GB/s between hosts: is this the intended network? "
            "Choose it with --network-interfaces"
        )
    addresses = {str(one["address"]) for ranks in hosts.values() for one in ranks}
    if len(hosts) > 1 and any(address.startswith("127.") for address in addresses):
        lines.append("note: these hosts are all this machine, so this says nothing about a network")
    return lines or ["advice: none, this looks well set up"]


def _address() -> str:
    """This rank's address as its peers use it."""
    from horovod.common import topology

    return topology.world().address or "none"


def _allreduce(name: str, data: Any, count: int) -> None:
    from horovod.common import constants, engine

    pointer = ctypes.addressof(data)
    request = engine.request(
        constants.ALLREDUCE, name, constants.FLOAT32, (count,), pointer, pointer, op=constants.Sum
    )
    engine.release(engine.run([request], keep=(data,)))


def _reduces_right(rank: int, size: int) -> bool:
    count = 1000
    data = (ctypes.c_float * count)(*[float(rank + i) for i in range(count)])
    _allreduce("self_test.sum", data, count)
    expected = [float(size * i + size * (size - 1) // 2) for i in range(count)]
    return list(data) == expected


def _seconds_per_allreduce(nbytes: int, repeats: int) -> float:
    count = nbytes // 4
    data = (ctypes.c_float * count)()
    name = f"self_test.{nbytes}"
    for _ in range(3):
        _allreduce(name, data, count)
    started = time.perf_counter()
    for _ in range(repeats):
        _allreduce(name, data, count)
    return (time.perf_counter() - started) / repeats


if __name__ == "__main__":
    sys.exit(main())
