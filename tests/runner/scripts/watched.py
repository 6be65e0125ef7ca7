# SPDX-License-Identifier: Apache-2.0
"""A training that somebody watches: steps of an allreduce, until a file appears; one rank may get stuck.

python watched.py --until FILE [--stuck-rank R --stuck-file FILE]
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

import horovod.numpy as hvd
from horovod.common.observation import step_done


def wait_in_the_data_loader(path: str) -> None:
    """Where a rank is found while it keeps the others waiting."""
    print("waits for data", flush=True)
    while_it_is_there(path)


def while_it_is_there(path: str) -> None:
    """A place of its own, so that all the time the line above is where the rank is."""
    while os.path.exists(path):
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", required=True)
    parser.add_argument("--stuck-rank", type=int, default=-1)
    parser.add_argument("--stuck-file", default="")
    args = parser.parse_args()
    hvd.init()
    print(f"rank {hvd.rank()} trains in process {os.getpid()} <b>&amp;", flush=True)
    step = 0
    while not hvd.allreduce(np.array([float(os.path.exists(args.until))]), op=hvd.Max, name="end")[0]:
        if hvd.rank() == args.stuck_rank and os.path.exists(args.stuck_file):
            wait_in_the_data_loader(args.stuck_file)
        time.sleep(0.01 * (1 + hvd.rank()))
        hvd.allreduce(np.ones(100_000, np.float32), name="gradient")
        hvd.count_samples(32)
        step_done()
        step += 1
        if step % 50 == 0:
            print(f"step {step}", flush=True)
    hvd.shutdown()


main()
