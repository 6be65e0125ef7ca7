# SPDX-License-Identifier: Apache-2.0
"""What tests import to start worlds of ranks."""

from reference import check_close
from world import RanksFailed, World, run_world, shared_world

__all__ = ["RanksFailed", "World", "check_close", "run_world", "shared_world"]
