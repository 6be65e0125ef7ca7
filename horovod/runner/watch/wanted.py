# SPDX-License-Identifier: Apache-2.0
"""What the user wants to see of a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping, Optional

from horovod.common import config

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Wanted:
    """Flags of horovodrun, or arguments of horovod.run. Ports: 0 takes a free one, None opens none."""

    dashboard: Optional[int] = None
    dashboard_address: str = LOOPBACK
    metrics_port: Optional[int] = None
    metrics_address: str = LOOPBACK
    top: bool = False

    @property
    def shows(self) -> bool:
        """Whether anything is to be shown, rather than only asked for later (--stacks)."""
        return self.dashboard is not None or self.metrics_port is not None or self.top


def wanted(flags: Mapping[str, Any], env: Mapping[str, str]) -> Optional[Wanted]:
    """What these flags ask for; None: nothing, and the ranks need not report.

    Args:
        flags: e.g. {"dashboard": 0, "top": True}; None and missing ones are not given.
        env: of the workers, where HOROVOD_OBSERVE may ask for reports alone.
    """
    given = {name: flags[name] for name in Wanted.__dataclass_fields__ if flags.get(name) is not None}
    for name in ("dashboard", "metrics_port"):
        port = given.get(name)
        if port is not None and not 0 <= int(port) <= 65535:
            raise ValueError(f"--{name.replace('_', '-')} {port}: a port is a number from 0 to 65535")
    made = Wanted(**given)
    return made if made.shows or config.get("observe", env) else None
