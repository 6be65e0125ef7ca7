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


def elastic_training(folder, steps):
    """Adds a number a step until the file "enough" exists, at least `steps`; logs every step of rank 0.

    Whoever starts while there is a file "hold" waits before it asks for a place.
    """
    import time

    import numpy as np

    import horovod.numpy as hvd
    from horovod.common.elastic import ObjectState, run_fn
    from horovod.ray import ray_logger

    def reset():
        hvd.shutdown()
        hvd.init()

    while os.path.exists(os.path.join(folder, "hold")):
        time.sleep(0.05)
    hvd.init()
    state = ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, step=0, total=0.0)

    def train(state):
        while state.step < steps or not hvd.broadcast_object(os.path.exists(os.path.join(folder, "enough"))):
            share = hvd.allreduce(np.full(1, 12.0 / hvd.size()), op=hvd.Sum, name="share")
            state.total += float(share[0])
            state.step += 1
            if hvd.rank() == 0:
                ray_logger.log({"step": state.step, "size": hvd.size(), "at": time.time()})
            with open(os.path.join(folder, f"pid.{hvd.rank()}.tmp{os.getpid()}"), "w") as file:
                file.write(str(os.getpid()))
            os.replace(file.name, os.path.join(folder, f"pid.{hvd.rank()}"))
            time.sleep(0.02)
            state.commit()
        return {"total": state.total, "steps": state.step, "size": hvd.size(), "pid": os.getpid()}

    return run_fn(train, reset)(state)


def raise_value_error():
    """A mistake of the script."""
    import horovod.numpy as hvd

    hvd.init()
    raise ValueError("bad sample")
