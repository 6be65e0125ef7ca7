# SPDX-License-Identifier: Apache-2.0
"""Programs that put functions of their own in the place of methods, as libraries for model parallelism do."""

from __future__ import annotations

import pytest
from tf_worlds import front_end, run


def hybrid():
    """Every rank has layers of its own, of other shapes, names and number, before a layer that all share.
    They are registered as local by functions put around the optimizer's and the callback's methods."""
    import types

    import numpy as np

    from horovod.common.objects import allgather_object

    keras, hvd, optimizers = front_end()
    me = hvd.rank()
    shared = keras.layers.Dense(1)
    own = [keras.layers.Dense(units, name=f"own{me}_{units}") for units in [(3, 2), (5, 4, 2)][me]]
    model = keras.Sequential([keras.layers.Input((3,)), *own, shared])
    random = np.random.default_rng(me)
    model.set_weights([random.normal(size=w.shape) for w in model.get_weights()])
    of_own_layers = {id(w) for layer in own for w in layer.weights}
    calls = []

    optimizer = hvd.DistributedOptimizer(optimizers.Adam(0.01), scale_local_gradients=False)
    optimizer.raw_allreduce = optimizer._allreduce
    optimizer.raw_allreduce_grads = optimizer._allreduce_grads

    def register_then_allreduce(self, grads, variables):
        calls.append("allreduce")
        for variable in variables:
            if id(variable) in of_own_layers:
                self.register_local_var(variable)
        return self.raw_allreduce(grads, variables)

    def named_allreduce_grads(self, grads, variables):
        calls.append("allreduce_grads")
        return self.raw_allreduce_grads(grads, variables, use_generic_names=True)

    optimizer._allreduce = types.MethodType(register_then_allreduce, optimizer)
    optimizer._allreduce_grads = types.MethodType(named_allreduce_grads, optimizer)

    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    callback.raw_on_batch_end = callback.on_batch_end

    def register_then_broadcast(self, batch, logs=None):
        if batch == 0:
            calls.append("on_batch_end")
            for variable in self.model.variables:
                if id(variable) in of_own_layers:
                    self.register_local_var(variable)
        return self.raw_on_batch_end(batch, logs)

    callback.on_batch_end = types.MethodType(register_then_broadcast, callback)

    before = [w.tolist() for w in own[0].get_weights()]
    model.compile(optimizer, "mse")
    x, y = np.ones((8, 3), np.float32), np.zeros((8, 1), np.float32)
    model.fit(x, y, batch_size=4, verbose=0, callbacks=[callback])
    weights = allgather_object([w.tolist() for w in shared.get_weights()])
    return {
        "called": set(calls) == {"allreduce", "allreduce_grads", "on_batch_end"} or calls,
        "shared weights agree": weights[0] == weights[1],
        "own layers are trained": before != [w.tolist() for w in own[0].get_weights()],
        "own layers keep their shape": own[0].get_weights()[0].shape == (3, 3 + 2 * me),
    }


@pytest.mark.parametrize("kind", ["tensorflow", "torch", "jax", "tf_keras", "tf1_graph"])
def test_functions_put_around_allreduce_and_on_batch_end_are_called(kind):
    for results in run(kind, hybrid):
        assert {what: ok for what, ok in results.items() if ok is not True} == {}


def hooks_of_callbacks():
    """A subclass hears of batches by the names of 0.28."""
    import numpy as np

    keras, hvd, optimizers = front_end()
    heard = []

    class Warmup(hvd.callbacks.LearningRateWarmupCallback):
        def on_batch_begin(self, batch, logs=None):
            heard.append("begin")
            super().on_batch_begin(batch, logs)

        def on_batch_end(self, batch, logs=None):
            heard.append("end")
            super().on_batch_end(batch, logs)

    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile(hvd.DistributedOptimizer(optimizers.SGD(0.1)), "mse")
    state = hvd.elastic.KerasState(model, batch=0)
    commit = hvd.elastic.CommitStateCallback(state, batches_per_commit=2)
    commit.on_batch_end, raw = lambda *args, **kwargs: heard.append("commit") or raw(0), commit.on_batch_end
    x = np.ones((4, 3), np.float32)
    model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[Warmup(0.1, warmup_epochs=1), commit])
    return heard, commit.batches_remaining


@pytest.mark.parametrize("kind", ["tensorflow", "tf_keras"])
def test_callbacks_are_extended_by_on_batch_begin_and_on_batch_end(kind):
    assert run(kind, hooks_of_callbacks) == [(["begin", "end", "commit"], 1)] * 2
