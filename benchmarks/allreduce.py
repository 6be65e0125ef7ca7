# SPDX-License-Identifier: Apache-2.0
"""A blocking in-place allreduce of float32, 4 B to 128 MiB, beside Gloo, Open MPI, MPICH and memcpy."""

from __future__ import annotations

from typing import Any, Dict

from benchmarks.harness import print_table, size_text, start_teams, take_turns

CONTENDERS = ("horovod", "gloo", "openmpi", "mpich", "memcpy")
SIZES = [4, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 128 << 20]


def run(quick: bool = False) -> Dict[str, Any]:
    """{"2": {"4": {"horovod": {...}}}}: ranks, bytes, contender."""
    result: Dict[str, Any] = {}
    for ranks in (2,) if quick else (2, 4):
        teams = start_teams(CONTENDERS, ranks)
        rows: Dict[str, Any] = {}
        try:
            for size in [4, 64 << 10] if quick else SIZES:
                inner = 50 if size <= 64 << 10 else 10 if size <= 1 << 20 else 1
                reps = 5 if size <= 16 << 20 else 3
                rounds = 2 if quick else 7
                rows[str(size)] = take_turns(teams, rounds, "allreduce", bytes=size, reps=reps, inner=inner)
                one = {size_text(size): rows[str(size)]}
                print_table(f"allreduce, {ranks} ranks" if size == 4 else "", "bytes", one)
        finally:
            for team in teams.values():
                team.close()
        result[str(ranks)] = rows
    return result
