# SPDX-License-Identifier: Apache-2.0
"""A small Gluon training in a job whose rank 1 dies once; prints what came out of it."""

import json
import os
import signal
import sys

import mxnet as mx
from mxnet import gluon

import horovod.mxnet as hvd

hvd.init()
marker = sys.argv[1]
net = gluon.nn.Dense(1, in_units=2, use_bias=False)
net.initialize(mx.init.Constant(1.0 + hvd.rank()))
trainer = hvd.DistributedTrainer(net.collect_params(), mx.optimizer.create("sgd", learning_rate=0.5))
state = hvd.elastic.MXNetState(net, trainer, step=0)
sizes = []


@hvd.elastic.run
def train(state):
    sizes.append(hvd.size())
    while state.step < 20 or hvd.broadcast_object(not os.path.exists(marker + ".enough")):
        if state.step == 5 and hvd.rank() == 1 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        with mx.autograd.record():
            loss = net(mx.nd.ones((1, 2))).sum()
        loss.backward()
        trainer.step(1)
        state.step += 1
        if len(sizes) >= 3:
            open(marker + ".enough", "w").close()
        state.commit()
    return net.weight.data().asnumpy()[0].tolist()


result = train(state)
print(json.dumps({"event": "result", "rank": hvd.rank(), "w": result, "step": state.step, "sizes": sizes}))
