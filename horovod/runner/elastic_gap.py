# SPDX-License-Identifier: Apache-2.0
"""What is said until the elastic driver exists: its flags are known, its jobs cannot run yet."""

from __future__ import annotations

from typing import NoReturn


def refuse_elastic() -> NoReturn:
    """Refuses an elastic job with what to do instead."""
    raise NotImplementedError(
        "Elastic jobs (--min-np, --max-np, --host-discovery-script) are not available yet. Start a static "
        "job with -np and -H or --hostfile; scripts with hvd.elastic.run work in it, without rescaling."
    )
