# SPDX-License-Identifier: Apache-2.0
"""Training: several ranks end with the weights of one process on the whole batch, whatever the options."""

from __future__ import annotations

import numpy as np
import pytest

STEPS = 10
BATCH = 24  # divisible by 2 and 3


def digits(rank=0, size=1):
    """This rank's part of fixed batches of scikit-learn's digits."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    batches = [(x[i * BATCH : (i + 1) * BATCH], y[i * BATCH : (i + 1) * BATCH]) for i in range(STEPS)]
    return [(bx[rank::size], by[rank::size]) for bx, by in batches]


def network(seed, conv=False, deferred=True):
    """A small model; without in_units its parameters are initialised by the first forward pass."""
    import mxnet as mx
    from mxnet.gluon import nn

    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        if conv:
            net.add(
                nn.HybridLambda(lambda F, x: x.reshape((-1, 1, 8, 8))),
                nn.Conv2D(8, 3, activation="relu"),
                nn.Flatten(),
            )
        net.add(
            nn.Dense(32, activation="tanh", in_units=0 if deferred else 64),
            nn.Dense(10, in_units=0 if deferred else 32),
        )
    mx.random.seed(seed)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def train(net, trainer, batches):
    import mxnet as mx

    loss_fn = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    for x, y in batches:
        with mx.autograd.record():
            loss = loss_fn(net(mx.nd.array(x)), mx.nd.array(y))
        loss.backward()
        trainer.step(len(x))
    return {name: p.data().asnumpy() for name, p in net.collect_params().items()}


def one_process(conv=False, deferred=True):
    import mxnet as mx

    net = network(0, conv, deferred)
    options = {"learning_rate": 0.5, "momentum": 0.9}
    return train(net, mx.gluon.Trainer(net.collect_params(), "sgd", options), digits())


def run_trainer(conv, deferred, options):
    import horovod.mxnet as hvd

    net = network(hvd.rank(), conv, deferred)
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)
    compression = hvd.Compression.fp16 if options.pop("fp16", False) else hvd.Compression.none
    sgd = {"learning_rate": 0.5, "momentum": 0.9}
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd", sgd, compression=compression, **options)
    return train(net, trainer, digits(hvd.rank(), hvd.size()))


CASES = {
    "deferred": (False, True, {}),
    "initialised": (False, False, {}),
    "convolution": (True, True, {}),
    "predivide": (False, True, {"gradient_predivide_factor": 2.0}),
    "groups": (False, True, {"num_groups": 2, "prefix": "g."}),
}


@pytest.mark.parametrize("case", CASES)
def test_same_weights_as_one_process(world, case):
    conv, deferred, options = CASES[case]
    want = one_process(conv, deferred)
    results = world.run(run_trainer, conv, deferred, options)
    for name, weight in want.items():
        assert np.allclose(results[0][name], weight, rtol=1e-3, atol=5e-5), name
        for other in results[1:]:
            assert np.array_equal(other[name], results[0][name]), name


def run_unlike_weights(broadcast):
    """What two trainers, as of a GAN, say of their weights."""
    import warnings

    import mxnet as mx

    import horovod.mxnet as hvd

    nets = [network(seed=10 * (hvd.rank() if not broadcast else 0) + i, deferred=False) for i in range(2)]
    trainers = [
        hvd.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, prefix=f"t{i}.")
        for i, net in enumerate(nets)
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x, y in digits(hvd.rank(), hvd.size()):
            for net, trainer in zip(nets, trainers):
                train(net, trainer, [(x, y)])
        mx.nd.waitall()
    return [str(one.message) for one in caught if "weights" in str(one.message)]


def test_weights_that_were_not_broadcast_are_reported(pair):
    texts, others = pair.run(run_unlike_weights, False)
    assert len(texts) == 2 and others == []
    for text in texts:
        assert "weights differ after the first step: those of rank 1 are not rank 0's" in text
        assert "net_dense" in text and "hvd.broadcast_parameters(net.collect_params())" in text


def test_equal_weights_pass_in_silence(pair):
    assert pair.run(run_unlike_weights, True) == [[], []]


def test_compressed_gradients_are_close(pair):
    results, want = (
        pair.run(run_trainer, False, True, {"fp16": True, "num_groups": 1}, timeout=300),
        one_process(),
    )
    for name, weight in want.items():
        assert np.array_equal(results[0][name], results[1][name])
        assert np.allclose(results[0][name], weight, atol=0.05), name


def fit_module(rank, size, wrap, arguments):
    """The symbol API: Module.fit with an optimizer."""
    import logging

    import mxnet as mx

    logging.disable(logging.WARNING)  # Module warns that rescale_grad is not 1 / batch size
    data = mx.sym.var("data")
    hidden = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=32, name="fc1"), act_type="tanh")
    out = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=10, name="fc2"), name="softmax")
    batches = digits(rank, size)
    x, y = np.concatenate([b[0] for b in batches]), np.concatenate([b[1] for b in batches])
    module = mx.mod.Module(out, context=mx.cpu())
    optimizer = wrap(mx.optimizer.create("sgd", learning_rate=0.5, momentum=0.9, rescale_grad=size / BATCH))
    module.fit(
        mx.io.NDArrayIter(x, y, batch_size=BATCH // size),
        optimizer=optimizer,
        arg_params={k: mx.nd.array(v) for k, v in arguments.items()},
        num_epoch=2,
        kvstore=None,
    )
    return {name: value.asnumpy() for name, value in module.get_params()[0].items()}


def module_arguments(seed):
    rng = np.random.default_rng(seed)
    shapes = {"fc1_weight": (32, 64), "fc1_bias": (32,), "fc2_weight": (10, 32), "fc2_bias": (10,)}
    return {k: rng.normal(0, 0.1, s).astype(np.float32) for k, s in shapes.items()}


def run_module(num_groups):
    import mxnet as mx

    import horovod.mxnet as hvd

    arguments = {k: mx.nd.array(v) for k, v in module_arguments(hvd.rank()).items()}
    hvd.broadcast_parameters(arguments, prefix="module.")
    arguments = {k: v.asnumpy() for k, v in arguments.items()}
    return fit_module(
        hvd.rank(), hvd.size(), lambda o: hvd.DistributedOptimizer(o, num_groups=num_groups), arguments
    )


@pytest.mark.parametrize("num_groups", [0, 2])
def test_module_with_distributed_optimizer(world, num_groups):
    want = fit_module(0, 1, lambda o: o, module_arguments(0))
    results = world.run(run_module, num_groups)
    for name, weight in want.items():
        assert np.allclose(results[0][name], weight, rtol=1e-3, atol=5e-5), name
        for other in results[1:]:
            assert np.array_equal(other[name], results[0][name]), name


def run_optimizer_details():
    """Attributes are the wrapped optimizer's; lists of indices reduce one by one; sets; unwrapping."""
    import warnings

    import mxnet as mx

    import horovod.mxnet as hvd

    inner = mx.optimizer.SGD(learning_rate=1.0)
    wrapped = hvd.DistributedOptimizer(inner)
    n, rank = hvd.size(), hvd.rank()
    checks = [np.isclose(wrapped.rescale_grad, 1.0 / n), isinstance(wrapped, mx.optimizer.Optimizer)]
    wrapped.lr_scheduler, wrapped.idx2name = None, {0: "w"}
    wrapped.set_learning_rate(2.0)
    checks += [inner.idx2name == {0: "w"}, inner.learning_rate == 2.0]

    weights = [mx.nd.zeros((3,)) for _ in range(4)]
    grads = [mx.nd.full((3,), i + rank) for i in range(4)]
    for i in range(4):
        wrapped.update(i, weights[i], grads[i], wrapped.create_state(i, weights[i]))
    checks += [np.allclose(w.asnumpy(), -2.0 * (i + (n - 1) / 2)) for i, w in enumerate(weights)]

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        parameter = mx.gluon.Parameter("p", shape=(2,))
        parameter.initialize(mx.init.Zero())
        trainer = hvd.DistributedTrainer({"p": parameter}, wrapped)
    checks += [any("unwrapped it for you" in str(w.message) for w in seen), trainer.optimizer is inner]
    checks += [np.isclose(trainer._scale, 1.0 / n)]
    return [bool(c) for c in checks]


def test_optimizer_details(world):
    assert all(all(checks) for checks in world.run(run_optimizer_details))


def run_set():
    """Ranks outside of the set update with their own gradients."""
    import mxnet as mx

    import horovod.mxnet as hvd
    import horovod.numpy as hvd_numpy

    some = hvd.add_process_set([0, 1])
    optimizer = hvd.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0), process_set=some)
    weight = mx.nd.zeros((2,))
    optimizer.update(0, weight, mx.nd.full((2,), hvd.rank()), None)
    got = float(weight[0].asscalar())
    hvd_numpy.barrier()
    hvd.remove_process_set(some)
    return got


def test_process_set(trio):
    assert trio.run(run_set) == [-0.5, -0.5, -2.0]
