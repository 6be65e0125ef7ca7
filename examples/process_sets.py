# SPDX-License-Identifier: Apache-2.0
"""Process sets: collectives among some of the processes.

    horovodrun -np 4 python examples/process_sets.py

Even and odd ranks reduce among themselves, at the same time; then all ranks together.
"""

import numpy as np

import horovod.numpy as hvd

# Sets may be given to init(), when all ranks know them beforehand; here the job's size is needed first.
hvd.init(process_sets="dynamic")

even, odd = range(0, hvd.size(), 2), range(1, hvd.size(), 2)
# Every rank adds every set, in the same order. One process alone has only the set that always exists.
sets = [hvd.add_process_set(ranks) for ranks in (even, odd)] if hvd.size() > 1 else [hvd.global_process_set]
mine = next(one for one in sets if one.included())

value = np.array([float(hvd.rank())])
inside = hvd.allreduce(value, op=hvd.Sum, process_set=mine)
together = hvd.allreduce(value, op=hvd.Sum)
members = hvd.allgather_object(f"rank {hvd.rank()}", process_set=mine)
print(
    f"rank {hvd.rank()} is number {mine.rank()} of {mine.size()} in its set {mine.ranks}: "
    f"sum in the set {inside[0]:g}, sum of all {together[0]:g}, set of {', '.join(members)}",
    flush=True,
)

hvd.barrier()
for one in sets:
    if one is not hvd.global_process_set:
        hvd.remove_process_set(one)
