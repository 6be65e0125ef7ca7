# SPDX-License-Identifier: Apache-2.0
"""Everything a static job needs to know, whichever launcher starts it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from horovod.common import config
from horovod.runner.hosts import HostInfo
from horovod.runner.watch.wanted import Wanted


@dataclass
class JobSettings:
    """What horovodrun's command line, or horovod.run's arguments, ask for."""

    command: List[str]
    num_proc: int
    hosts: List[HostInfo]
    env: Dict[str, str]
    ssh_port: Optional[int] = None
    ssh_identity_file: Optional[str] = None
    start_timeout: float = 30.0
    nics: Optional[List[str]] = None
    output_filename: Optional[str] = None
    prefix_output_with_timestamp: bool = False
    verbose: int = 0
    stdout: Optional[Any] = None
    stderr: Optional[Any] = None
    watch: Optional[Wanted] = None  # None: nobody looks at it

    def __post_init__(self) -> None:
        """Interfaces that were asked for win over those of an exported variable."""
        if self.nics:
            self.env = {**self.env, "NCCL_SOCKET_IFNAME": ",".join(self.nics)}

    @property
    def network_timeout(self) -> float:
        """How long hosts may be silent, as the workers' links endure it too."""
        return float(config.get("network_timeout_seconds", self.env))


def working_directory() -> str:
    """Where the job is started, and its workers run."""
    try:
        return os.getcwd()
    except OSError as error:
        raise ValueError(
            f"the working directory does not exist any more ({error.strerror}): change to another one"
        ) from error
