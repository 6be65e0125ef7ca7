# SPDX-License-Identifier: Apache-2.0
"""Run as every rank by the launcher tests: joins the job, reduces, prints one line of JSON; several times.

python report.py [--rounds N] [--comm world|split|list] [--mpi4py] [--sleep S] [--crash RANK]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

import numpy as np

import horovod.numpy as hvd
from horovod.rendezvous.detection import detect

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=1)
parser.add_argument("--comm", choices=["none", "world", "split", "list"], default="none")
parser.add_argument("--mpi4py", action="store_true")
parser.add_argument("--sleep", type=float, default=0)
parser.add_argument("--crash", type=int, default=-1)
args = parser.parse_args()

comm = None
if args.mpi4py or args.comm in ("world", "split"):
    from mpi4py import MPI

    if args.comm == "world":
        comm = MPI.COMM_WORLD
    elif args.comm == "split":
        comm = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.Get_rank() % 2)
if args.comm == "list":
    me = detect()
    comm = [rank for rank in range(me.size) if rank % 2 == me.rank % 2]

for number in range(args.rounds):
    hvd.init(comm)
    rank, size = hvd.rank(), hvd.size()
    small = hvd.allreduce(np.arange(4, dtype=np.float64) + rank, op=hvd.Sum)
    assert small.tolist() == [size * i + size * (size - 1) / 2 for i in range(4)], small
    large = hvd.allreduce(np.full(1_000_003, rank + 1, np.float32), op=hvd.Sum)
    assert (large == size * (size + 1) / 2).all()
    gathered = hvd.allgather(np.full((rank + 1, 2), rank, np.int32))
    assert gathered[:, 0].tolist() == [r for r in range(size) for _ in range(r + 1)]
    if args.mpi4py:
        assert MPI.COMM_WORLD.allreduce(1) == MPI.COMM_WORLD.Get_size()
    facts = {"rank": rank, "size": size, "local_rank": hvd.local_rank(), "local_size": hvd.local_size()}
    facts.update(cross_rank=hvd.cross_rank(), cross_size=hvd.cross_size(), round=number)
    facts.update(launcher=detect().launcher, mpi=hvd.mpi_enabled(), pid=os.getpid())
    # One write, so that launchers which do not keep lines together cannot mix two of them.
    os.write(1, (json.dumps(facts) + "\n").encode())
    if rank == args.crash:
        raise SystemExit("crashed on purpose")
    if args.sleep:
        deadline = time.monotonic() + args.sleep
        while time.monotonic() < deadline:
            hvd.allreduce(np.ones(1000, np.float32), name="busy")
    hvd.shutdown()
sys.exit(0)
