# SPDX-License-Identifier: Apache-2.0
"""Two hosts: the allreduce between them beside Gloo and the MPIs, and beside iperf3 over the same wire.

The wire is unlimited (then the CPU is the limit). A full run also slows it down to 1 Gbit/s (then the wire
is). iperf3 sends one way, "iperf3 both ways" in both directions at once, as an allreduce does. "sockets" is
an allreduce of two ranks with nothing but a socket between them, "sockets, no sum" the same bytes without the
additions: what such a wire allows a program that sends and receives on the same cores.

iperf3 sends without a pause, for a second or two. So over the unlimited wire the others make several calls in
a row, and the first is left out: a connection that has been idle for more than 50 ms starts slowly where the
system paces it (BBR), and 64 MiB then take 60 ms instead of 20. This package uses reno there, the others what
the system says; "system's tcp" is this package if it is told to do so, too, "iperf3 reno" iperf3 with reno.
"""

from __future__ import annotations

from benchmarks.bench import KIB, MIB, Bench, Rows, repetitions
from benchmarks.iperf import Iperf
from benchmarks.rows import OURS, Row
from benchmarks.starting_on_hosts import teams_on
from benchmarks.turns import Command, Work, take_turns
from benchmarks.units import ranks_text, size_text
from benchmarks.wires import Hosts, why_not

CONTENDERS = (OURS, "gloo", "openmpi", "mpich")
AS_THE_SYSTEM = "horovod, system's tcp"
SIZES = (4, 64 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB)
IN_A_ROW = {"reps": 1, "inner": 4}
BARE = ("sockets", "sockets, no sum")  # for one rank a host, and sizes where the wire counts


def run(bench: Bench) -> Rows:
    """1 and 2 ranks a host."""
    for rate in ("",) if bench.quick else ("", "1gbit"):
        wire = " at 1 Gbit/s" if rate else ""
        sizes = (4, 64 * MIB) if bench.quick or rate else SIZES
        for per_host in (1, 2):
            reason = why_not()
            if reason is not None:
                for size in sizes:
                    yield Row(_name(wire, size, per_host), not_run=reason)
                continue
            names = CONTENDERS + (BARE if per_host == 1 else ()) + (() if rate else (AS_THE_SYSTEM,))
            with Hosts(2, rate) as hosts, teams_on(hosts, names, per_host) as (teams, absent):
                for size in sizes:
                    in_a_row = not rate and size > MIB
                    works: dict[str, Work] = {
                        name: Command(
                            team,
                            "allreduce",
                            bytes=size,
                            **(IN_A_ROW if in_a_row else repetitions(size, name)),
                        )
                        for name, team in teams.items()
                        if size >= MIB or name not in BARE
                    }
                    if size >= MIB:
                        seconds = 1 if bench.quick else 2
                        works["iperf3"] = Iperf(hosts, per_host, size, seconds)
                        works["iperf3 both ways"] = Iperf(hosts, per_host, size, seconds, both_ways=True)
                    if size == max(sizes) and not rate:
                        works["iperf3 reno"] = Iperf(hosts, per_host, size, seconds, congestion="reno")
                    patience = bench.at_most(4) if rate else bench.patience
                    row = take_turns(_name(wire, size, per_host), works, patience, absent)
                    row.at = {"hosts": 2, "ranks": per_host, "bytes": size, "gbit": 1 if rate else 0}
                    yield row


def _name(wire: str, size: int, per_host: int) -> str:
    return f"two hosts{wire}, {size_text(size)}, {ranks_text(per_host)} a host"
