# SPDX-License-Identifier: Apache-2.0
"""What the tests run on ranks in Ray actors; Ray's workers import it from here."""

from __future__ import annotations

import os


def where():
    """Who this rank is, after an allreduce with the others."""
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    total = hvd.allreduce(np.full(4, hvd.rank() + 1.0), op=hvd.Sum)
    return {
        "rank": hvd.rank(), "size": hvd.size(), "local_rank": hvd.local_rank(),
        "local_size": hvd.local_size(), "cross_rank": hvd.cross_rank(), "cross_size": hvd.cross_size(),
        "sum": float(total[0]), "pid": os.getpid(), "host": os.environ["HOROVOD_HOSTNAME"],
        "node": os.environ["HOROVOD_HOST_KEY"], "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }  # fmt: skip


def fail_on(rank, how):
    """One rank raises or dies, the others wait for it."""
    import numpy as np

    import horovod.numpy as hvd

    hvd.init()
    hvd.allreduce(np.ones(4), name="before")
    if hvd.rank() == rank:
        if how == "die":
            os._exit(3)
        raise ValueError("bad batch")
    hvd.allreduce(np.ones(4), name="never")


def die_before_init(rank):
    """One rank ends before it has called hvd.init()."""
    if os.environ["HOROVOD_RANK"] == str(rank):
        os._exit(3)
    return where()


class Counter:
    """An executable: keeps something from call to call."""

    def __init__(self, start, step=1):
        import horovod.numpy as hvd

        hvd.init()
        self.value, self.step, self.rank = start, step, hvd.rank()

    def count(self):
        self.value += self.step * (self.rank + 1)
        return self.value


def gpus():
    """The GPUs that Ray gave this rank, those it sees, and its local rank."""
    import ray

    import horovod.numpy as hvd

    hvd.init()
    return [str(one) for one in ray.get_gpu_ids()], os.environ["CUDA_VISIBLE_DEVICES"], hvd.local_rank()


def current_group():
    """The placement group this rank runs in."""
    import ray

    return ray.get_runtime_context().get_placement_group_id()
