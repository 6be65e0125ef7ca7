# SPDX-License-Identifier: Apache-2.0
"""A small JAX training in a job whose rank 1 dies once; prints what came out of it."""

import json
import os
import signal
import sys

import jax
import jax.numpy as jnp

import horovod.jax as hvd

hvd.init()
marker = sys.argv[1]
state = hvd.elastic.JaxState(params={"w": jnp.full(3, float(hvd.rank()))}, step=0)
sizes = []


@jax.jit
def step(params):
    return {"w": params["w"] + hvd.allreduce(jnp.ones(3), name="ones", op=hvd.Average)}


@hvd.elastic.run
def train(state):
    sizes.append(hvd.size())
    while state.step < 20 or hvd.broadcast_object(not os.path.exists(marker + ".enough")):
        if state.step == 5 and hvd.rank() == 1 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        state.params = step(state.params)
        state.step += 1
        if len(sizes) >= 3:
            open(marker + ".enough", "w").close()
        state.commit()
    return state.params["w"].tolist()


result = train(state)
print(json.dumps({"event": "result", "rank": hvd.rank(), "w": result, "step": state.step, "sizes": sizes}))
