# SPDX-License-Identifier: Apache-2.0
"""mpi4py over the MPI of its environment."""

from __future__ import annotations

from typing import Any, List

from benchmarks.contenders.adapter import Adapter


class Mpi(Adapter):
    """Open MPI or MPICH."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.mpi, self.comm = MPI, MPI.COMM_WORLD
        self.rank, self.size = self.comm.rank, self.comm.size

    def allreduce(self, data: Any, name: str = "bench") -> Any:
        self.comm.Allreduce(self.mpi.IN_PLACE, data, self.mpi.SUM)
        return data

    def start(self, data: Any, name: str) -> Any:
        return self.comm.Iallreduce(self.mpi.IN_PLACE, data, self.mpi.SUM)

    def done(self, handle: Any) -> bool:
        return bool(handle.Test())

    def finish(self, handles: List[Any]) -> None:
        self.mpi.Request.Waitall(handles)

    def barrier(self) -> None:
        self.comm.Barrier()
