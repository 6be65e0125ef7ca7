# SPDX-License-Identifier: Apache-2.0
"""What an executor on Ray may be told beside the number of its workers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Optional, Sequence

from horovod.runner.common.util.timeout import Timeout


@dataclass
class MiniSettings:
    """Made by `RayExecutor.create_settings`.

    Attributes:
        nics: interfaces for the traffic between hosts, e.g. {"eth0"}; by default those that Ray uses.
        verbose: accepted for compatibility.
        key: accepted for compatibility: every job makes a secret of its own.
        ssh_port, ssh_identity_file: accepted for compatibility: nothing here uses ssh.
        timeout_s: how long ranks wait for each other in hvd.init().
        placement_group_timeout_s: how long to wait for room in the cluster.
    """

    nics: Optional[Any] = None
    verbose: int = 1
    key: Optional[bytes] = None
    ssh_port: Optional[int] = None
    ssh_identity_file: Optional[str] = None
    timeout_s: float = 300
    placement_group_timeout_s: float = 100

    @property
    def start_timeout(self) -> Timeout:
        """A limit that begins now."""
        return Timeout(
            self.timeout_s,
            "Timed out waiting for {activity}. Please check connectivity between servers. You may need to "
            "increase the timeout_s parameter if you have too many servers.",
        )


def create_settings(
    timeout_s: float = 30,
    ssh_identity_file: Optional[str] = None,
    ssh_str: Optional[str] = None,
    placement_group_timeout_s: float = 100,
    nics: Optional[Any] = None,
) -> MiniSettings:
    """Settings for a RayExecutor.

    Args:
        timeout_s: how long ranks wait for each other in hvd.init().
        ssh_identity_file: accepted for compatibility: nothing here uses ssh.
        ssh_str: written to ssh_identity_file, with mode 0600, if there is no such file.
        placement_group_timeout_s: how long `start` waits for room in the cluster.
        nics: interfaces for the traffic between hosts, e.g. {"eth0"}; by default those that Ray uses.
    """
    if ssh_str and ssh_identity_file and not os.path.exists(ssh_identity_file):
        descriptor = os.open(ssh_identity_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(ssh_str)
    return MiniSettings(
        ssh_identity_file=ssh_identity_file,
        timeout_s=timeout_s,
        placement_group_timeout_s=placement_group_timeout_s,
        nics=nics,
    )


def interfaces(settings: Any) -> Sequence[str]:
    """The interfaces that some settings name, in a fixed order; settings may be None or of another kind."""
    return sorted(getattr(settings, "nics", None) or ())


def seconds_to_meet(settings: Any) -> Optional[float]:
    """How long ranks wait for each other in hvd.init(); None: as they do anyway."""
    found = getattr(settings, "timeout_s", None)
    return None if found is None else float(found)


def seconds_for_room(settings: Any) -> float:
    """How long to wait for a placement group."""
    return float(getattr(settings, "placement_group_timeout_s", None) or 100)
