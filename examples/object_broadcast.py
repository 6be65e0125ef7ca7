# SPDX-License-Identifier: Apache-2.0
"""Python objects: one process decides, all know; all report, everyone sees.

    horovodrun -np 2 python examples/object_broadcast.py

Objects are pickled; large arrays inside them travel without being copied into the pickle. Only processes of
the job, which have proven its secret, can send them.
"""

import os
import time

import numpy as np

import horovod.numpy as hvd

hvd.init()

# Rank 0 chooses a configuration; the others pass anything and get rank 0's.
config = None
if hvd.rank() == 0:
    config = {"run": f"run-{time.strftime('%Y%m%d')}", "lr": 0.1, "mean": np.arange(4, dtype=np.float32)}
config = hvd.broadcast_object(config, root_rank=0)
print(f"rank {hvd.rank()} got lr {config['lr']} and mean {config['mean'].tolist()}", flush=True)

# Everyone reports; everyone gets the list in rank order. The objects may be of different sizes.
report = {"rank": hvd.rank(), "pid": os.getpid(), "notes": ["x"] * hvd.rank()}
reports = hvd.allgather_object(report)
if hvd.rank() == 0:
    print(f"{len(reports)} reports, from ranks {[r['rank'] for r in reports]}", flush=True)
