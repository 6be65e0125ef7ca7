# SPDX-License-Identifier: Apache-2.0
"""Every collective once, on NumPy arrays.

horovodrun -np 2 python examples/numpy_hello.py
python examples/numpy_hello.py
"""

import numpy as np

import horovod.numpy as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
here = f"number {hvd.local_rank()} of {hvd.local_size()} on its host"
print(f"hello from rank {rank} of {size} ({here})", flush=True)

mine = np.full(3, float(rank))
total = hvd.allreduce(mine, op=hvd.Sum)  # element by element over all ranks
mean = hvd.allreduce(mine)  # Average is the default
rows = hvd.allgather(np.full((rank + 1, 2), rank))  # ranks may bring different numbers of rows
root = hvd.broadcast(mine, root_rank=size - 1)
swapped = hvd.alltoall(np.arange(size) + 10 * rank)  # row i goes to rank i
part = hvd.reducescatter(np.arange(2 * size), op=hvd.Sum)  # the sum, each rank keeping its rows

# The asynchronous form: start, do something else, then wait.
handle = hvd.allreduce_async(mine, op=hvd.Max, name="largest")
largest = hvd.synchronize(handle)

hvd.barrier()
if rank == 0:
    print("sum          ", total)
    print("mean         ", mean)
    print("allgather    ", rows[:, 0])
    print("broadcast    ", root)
    print("alltoall     ", swapped)
    print("reducescatter", part)
    print("max          ", largest, flush=True)
