# SPDX-License-Identifier: Apache-2.0
"""A training whose result does not depend on who does it: every step adds up the next samples of an epoch.

elastic_train.py --steps 40 --pause 0.05        prints a JSON line for what happens; see tests/runner/elastic
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time

import numpy as np

import horovod.numpy as hvd
from horovod.common import topology
from horovod.common.basics import basics
from horovod.common.elastic import ObjectState, run_fn

BATCH = 12  # samples a step, all ranks together


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds a step takes besides")
    parser.add_argument("--commit-every", type=int, default=1)
    parser.add_argument("--wait-for", help="do not end before this file exists")
    parser.add_argument("--hold", help="do not join the job while this file exists")
    parser.add_argument("--die-in-reset", type=int, help="who has this rank dies while the world re-forms")
    parser.add_argument("--raise-at", type=int, help="rank 1 raises ValueError at this step")
    parser.add_argument("--mismatch-at", type=int, help="ranks disagree at this step")
    parser.add_argument("--sets", action="store_true", help="use process sets of even and odd ranks")
    return parser.parse_args()


def say(**values):
    os.write(1, (json.dumps(dict(values, pid=os.getpid(), time=time.time())) + "\n").encode())


args = parse()
while args.hold and os.path.exists(args.hold):
    time.sleep(0.05)
hvd.init(process_sets="dynamic" if args.sets else None)
state = ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, step=0, total=0.0, samples=0)
resets = []
sets = [hvd.add_process_set(ranks) for ranks in ([0, 2], [0, 1])] if args.sets else []
done = []  # steps that this process has done


def one_step(number):
    mine = np.arange(number * BATCH, (number + 1) * BATCH, dtype=np.float64)[hvd.rank() :: hvd.size()]
    if args.raise_at == number and hvd.rank() == 1:
        raise ValueError(f"sample {number} is bad")
    if args.mismatch_at == number:
        hvd.allreduce(np.ones(2 + hvd.rank()), name="odd")
    sums = np.array([mine.sum(), len(mine)])
    return hvd.allreduce(sums, op=hvd.Sum, name="samples")


def train(state):
    say(event="train", rank=hvd.rank(), size=hvd.size(), local_rank=hvd.local_rank(), step=state.step,
        generation=topology.world().generation, host=os.environ.get("HOROVOD_HOSTNAME"))  # fmt: skip
    while state.step < args.steps or (
        args.wait_for and not hvd.broadcast_object(os.path.exists(args.wait_for))
    ):
        total, samples = one_step(state.step)
        for one in sets:
            if one.process_set_id is not None and one.included():
                members = float(hvd.allreduce(np.ones(1), op=hvd.Sum, name="set", process_set=one)[0])
                assert members == 2, (members, one)
                say(event="set", ranks=one.ranks, generation=topology.world().generation)
        done.append(state.step)
        state.total += total
        state.samples += int(samples)
        state.step += 1
        if hvd.rank() == 0:
            say(event="step", step=state.step, size=hvd.size())
        time.sleep(args.pause)
        if state.step % args.commit_every == 0:
            state.commit()
        else:
            state.check_host_updates()
    return state.total


def reset():
    resets.append(1)
    if hvd.is_initialized() and args.die_in_reset == hvd.rank() and len(resets) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    basics.reset()


result = run_fn(train, reset)(state)
say(event="result", rank=hvd.rank(), size=hvd.size(), total=result, samples=state.samples, steps=state.step,
    done=done, resets=len(resets))  # fmt: skip
