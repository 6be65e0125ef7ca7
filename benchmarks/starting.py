# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a contender are started, on this machine."""

from __future__ import annotations

import os
import socket
import sys
from typing import Dict, List, Mapping, Sequence, Tuple

from benchmarks.contenders import CONTENDERS
from benchmarks.environments import ROOT, CannotInstall, mpi_environment
from benchmarks.team import ContenderFailed, Team

ONE_THREAD = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def worker(name: str, python: str = sys.executable) -> List[str]:
    """The command of one rank."""
    contender = CONTENDERS.get(name)
    if contender is None:
        raise ContenderFailed(f"no contender is called {name}; there are {', '.join(CONTENDERS)}")
    return [python, "-m", "benchmarks.worker", contender.adapter]


def mpirun(name: str) -> Tuple[List[str], str, Dict[str, str]]:
    """An MPI's mpirun, the Python beside it, and the environment both need."""
    try:
        place = mpi_environment(name)
    except CannotInstall as error:
        raise ContenderFailed(str(error)) from error
    env = {
        "PATH": f"{place}:{os.environ['PATH']}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **ONE_THREAD,
    }
    return [str(place / "mpirun")], str(place / "python"), env


def free_port() -> int:
    """A port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def with_variables(variables: Mapping[str, object], command: Sequence[str]) -> List[str]:
    """A command with a few more environment variables."""
    return ["env", *(f"{key}={value}" for key, value in variables.items()), *command]


def start(name: str, size: int) -> Team:
    """Starts the ranks, which are there after `gather`, or raises ContenderFailed with the reason."""
    rank = worker(name)
    contender = CONTENDERS[name]
    if contender.start in ("openmpi", "mpich"):
        command, python, env = mpirun(contender.start)
        command += ["-n", str(size)]
        if contender.start == "openmpi":
            command += ["--oversubscribe", "--bind-to", "none"]
        return Team(name, size, [[*command, *worker(name, python)]], {**env, **contender.env})
    env = {**ONE_THREAD, **contender.env}
    if contender.start == "horovodrun":
        launcher = [sys.executable, "-m", "horovod.runner.launch", "-np", str(size)]
        return Team(name, size, [[*launcher, *rank]], env)
    port = free_port()
    commands = [
        with_variables({"RANK": i, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}, rank)
        for i in range(size)
    ]
    return Team(name, size, commands, env)


class Teams:
    """Teams that are kept for as long as a run lasts: starting them takes longer than most measurements."""

    def __init__(self) -> None:
        self._teams: Dict[Tuple[str, int], Team] = {}

    def get(self, names: Sequence[str], size: int) -> Tuple[Dict[str, Team], Dict[str, str]]:
        """The teams that can be had, and why the others cannot."""
        absent: Dict[str, str] = {}
        started = []
        for name in names:
            old = self._teams.get((name, size))
            if old is not None and old.failed:
                del self._teams[name, size]
                old.close()
            if (name, size) not in self._teams:
                try:
                    self._teams[name, size] = start(name, size)
                    started.append(name)
                except ContenderFailed as error:
                    absent[name] = str(error)
        for name in started:  # they start at the same time
            try:
                self._teams[name, size].gather()
            except ContenderFailed as error:
                absent[name] = str(error)
                del self._teams[name, size]
        return {name: self._teams[name, size] for name in names if name not in absent}, absent

    def close(self) -> None:
        """Ends all of them."""
        for team in self._teams.values():  # they end at the same time
            team.dismiss()
        for team in self._teams.values():
            team.close()
        self._teams.clear()

    def __enter__(self) -> Teams:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
