# SPDX-License-Identifier: Apache-2.0
"""A real Slurm of one node here: munged, slurmctld and slurmd, with their state in a temporary folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from typing import Callable, Dict, List, Optional

from ports import free_ports
from waiting import until

_PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "scontrol")


def why_not() -> Optional[str]:
    """Why Slurm cannot be started here, or None if it can be tried."""
    if os.geteuid() != 0:
        return "slurmd needs root"
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    for program in _PROGRAMS:
        if shutil.which(program, path=path) is None:
            return f"{program} is not installed (scripts/setup-system.sh installs it)"
    return None


class Slurm:
    """Runs from entering the context until leaving it."""

    def __init__(self, cpus: int = 4) -> None:
        self.folder = tempfile.mkdtemp(prefix="hvdslurm")
        os.chmod(self.folder, 0o755)
        self.cluster = f"hvdtest{os.getpid()}"  # names files in the user's folder; others may run one, too
        self.cpus = cpus
        self._daemons: List[subprocess.Popen[bytes]] = []

    def environment(self) -> Dict[str, str]:
        """With this, srun and sbatch talk to this Slurm."""
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        return dict(os.environ, SLURM_CONF=f"{self.folder}/slurm.conf", PATH=path)

    def __enter__(self) -> Slurm:
        try:
            self._configure()
            self._start(["munged", "-F", "-S", f"{self.folder}/munge/socket", "--key-file",
                         f"{self.folder}/munge/key", "--log-file", f"{self.folder}/munge/log", "--pid-file",
                         f"{self.folder}/munge/pid", "--seed-file", f"{self.folder}/munge/seed",
                         "--force"])  # fmt: skip
            self._await(lambda: os.path.exists(f"{self.folder}/munge/socket"), "munged")
            self._start(["slurmctld", "-D", "-i", "-f", f"{self.folder}/slurm.conf"])
            self._start(["slurmd", "-D", "-N", "here", "-f", f"{self.folder}/slurm.conf"])
            self._await(self._idle, "slurmd")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(5)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, command: List[str], timeout: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
        """Runs srun, sbatch or the like."""
        return subprocess.run(
            command,
            env={**self.environment(), **env},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def log(self) -> str:
        """What the daemons said, for failure reports."""
        text = ""
        for name in ("slurmctld.log", "slurmd.log", "munge/log"):
            try:
                with open(f"{self.folder}/{name}", encoding="utf-8") as file:
                    text += f"--- {name}\n" + "".join(file.readlines()[-15:])
            except OSError:
                pass
        return text

    # ------------------------------------------------------------------------------------- private

    def _start(self, command: List[str]) -> None:
        self._daemons.append(
            subprocess.Popen(
                command,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        )

    def _idle(self) -> bool:
        shown = subprocess.run(
            ["scontrol", "show", "node", "here"],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        return "State=IDLE" in shown.stdout

    def _await(self, ready: Callable[[], bool], name: str) -> None:
        try:
            until(ready, f"{name} has started")
        except AssertionError as error:
            raise RuntimeError(f"{name} did not start:\n{self.log()}") from error

    def _configure(self) -> None:
        for name in ("munge", "state", "spool"):
            os.makedirs(f"{self.folder}/{name}", mode=0o711)
        with open(f"{self.folder}/munge/key", "wb") as key:
            key.write(os.urandom(128))
        os.chmod(f"{self.folder}/munge/key", 0o600)
        with open(f"{self.folder}/cgroup.conf", "w", encoding="utf-8") as file:
            file.write("CgroupPlugin=cgroup/v1\n")
        host = socket.gethostname()
        control, node = free_ports(2)
        with open(f"{self.folder}/slurm.conf", "w", encoding="utf-8") as file:
            file.write(
                f"ClusterName={self.cluster}\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n"
                f"SlurmctldPort={control}\nSlurmdPort={node}\nAuthType=auth/munge\n"
                f"AuthInfo=socket={self.folder}/munge/socket\nCryptoType=crypto/munge\n"
                f"StateSaveLocation={self.folder}/state\nSlurmdSpoolDir={self.folder}/spool\n"
                f"SlurmctldLogFile={self.folder}/slurmctld.log\nSlurmdLogFile={self.folder}/slurmd.log\n"
                f"SlurmctldPidFile={self.folder}/slurmctld.pid\nSlurmdPidFile={self.folder}/slurmd.pid\n"
                "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nReturnToService=2\nSwitchType=switch/none\n"
                "MpiDefault=none\nSelectType=select/cons_tres\nSlurmdParameters=config_overrides\n"
                f"NodeName=here NodeHostname={host} NodeAddr=127.0.0.1 CPUs={self.cpus} State=UNKNOWN\n"
                "PartitionName=all Nodes=here Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES\n"
            )
