# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a contender are started on several hosts of wires.py."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from typing import Dict, Iterator, List, Sequence, Tuple

from benchmarks.contenders import CONTENDERS
from benchmarks.machine import cores
from benchmarks.starting import ONE_THREAD, mpirun, with_variables, worker
from benchmarks.team import ContenderFailed, Team
from benchmarks.wires import Hosts

PORT = 29555  # the hosts have their ports to themselves
PROBE_BYTES = 1 << 20


def start(name: str, hosts: Hosts, per_host: int) -> Team:
    """Starts a contender with so many ranks a host."""
    how = CONTENDERS[name].start
    if how == "openmpi":
        return _openmpi(name, hosts, per_host)
    if how == "mpich":
        return _mpich(name, hosts, per_host)
    size = per_host * len(hosts.addresses)
    commands = []
    job = secrets.token_hex(4)
    for rank in range(size):
        host, local = divmod(rank, per_host)
        if how == "horovodrun":
            # As under srun: ranks meet through a file in a folder that all hosts see.
            variables: Dict[str, object] = {
                "SLURM_PROCID": rank,
                "SLURM_STEP_NUM_TASKS": size,
                "SLURM_LOCALID": local,
                "SLURM_STEP_ID": 0,
                "SLURM_JOB_ID": job,
                "SLURM_STEP_NUM_NODES": len(hosts.addresses),
                "SLURMD_NODENAME": hosts.name(host),
                "SLURM_LAUNCH_NODE_IPADDR": hosts.switch,
                "HOROVOD_RENDEZVOUS_DIR": hosts.folder,
            }
        else:
            variables = {
                "RANK": rank,
                "WORLD_SIZE": size,
                "MASTER_ADDR": hosts.addresses[0],
                "MASTER_PORT": PORT,
                "GLOO_SOCKET_IFNAME": "eth0",
            }
        commands.append(hosts.inside(host, with_variables(variables, worker(name))))
    return Team(name, size, commands, {**ONE_THREAD, **CONTENDERS[name].env})


def _openmpi(name: str, hosts: Hosts, per_host: int) -> Team:
    command, python, env = mpirun("openmpi")
    size = per_host * len(hosts.addresses)
    network = f"{hosts.network}.0/24"
    command += ["-n", str(size), "--bind-to", "none"]
    command += ["--host", ",".join(f"{address}:{per_host}" for address in hosts.addresses)]
    command += ["--prtemca", "plm_ssh_agent", hosts.agent(), "--prtemca", "prte_if_include", network]
    command += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,sm,self", "--mca", "btl_tcp_if_include", network]
    if size > cores():  # it cannot know that its hosts share the cores, and would not let others run
        command += ["--mca", "mpi_yield_when_idle", "1"]
    for variable in ("HVD_BENCH_SOCKET", *ONE_THREAD):
        command += ["-x", variable]
    command += ["--wdir", os.getcwd()]
    return Team(name, size, [[*command, *worker(name, python)]], env)


def _mpich(name: str, hosts: Hosts, per_host: int) -> Team:
    command, python, env = mpirun("mpich")
    size = per_host * len(hosts.addresses)
    command += ["-n", str(size), "-ppn", str(per_host), "-hosts", ",".join(hosts.addresses)]
    command += ["-launcher", "ssh", "-launcher-exec", hosts.agent()]
    command += ["-iface", hosts.bridge, "-localhost", hosts.switch]
    # Left to itself, UCX finds that both hosts are one machine and goes through its memory.
    for variable, value in {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0", "FI_PROVIDER": "tcp"}.items():
        command += ["-genv", variable, value]
    return Team(name, size, [[*command, *worker(name, python)]], env)


def _see_bytes_on_the_wire(team: Team, hosts: Hosts) -> None:
    """An allreduce sends at least its bytes between the first host and the others."""
    before = hosts.sent(0)
    team.command("allreduce", bytes=PROBE_BYTES, reps=1, inner=1)
    sent = hosts.sent(0) - before
    if sent < PROBE_BYTES:
        team.close()
        raise ContenderFailed(f"it does not use the wire: {sent} of {PROBE_BYTES} bytes were seen on it")


@contextmanager
def teams_on(
    hosts: Hosts, names: Sequence[str], per_host: int
) -> Iterator[Tuple[Dict[str, Team], Dict[str, str]]]:
    """The teams that can be had and why the others cannot, while the with block lasts."""
    teams: Dict[str, Team] = {}
    absent: Dict[str, str] = {}
    gone: List[str] = []
    try:
        for name in names:
            try:
                teams[name] = start(name, hosts, per_host)
            except ContenderFailed as error:
                absent[name] = str(error)
        for name, team in teams.items():
            try:
                team.gather()
                _see_bytes_on_the_wire(team, hosts)
            except ContenderFailed as error:
                absent[name] = str(error)
                gone.append(name)
        for name in gone:
            del teams[name]
        yield teams, absent
    finally:
        for team in teams.values():
            team.dismiss()
        for team in teams.values():
            team.close()
