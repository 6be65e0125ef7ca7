# SPDX-License-Identifier: Apache-2.0
"""Options of the wrapped optimizer are honoured on every backend."""

from __future__ import annotations

import pytest
from tf_worlds import front_end, run

KINDS = ["tensorflow", "torch", "jax", "tf_keras"]


def honoured(options, lists_of_variables, times=1.0):
    """One `apply` of four gradients: the weights after it, the groups sent, the tensors compressed."""
    import importlib
    import os

    import numpy as np

    keras, hvd, optimizers = front_end()
    legacy = bool(os.environ.get("TF_USE_LEGACY_KERAS"))
    backend = "tensorflow" if legacy else keras.config.backend()
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2), keras.layers.Dense(1)])
    model.set_weights([np.zeros(w.shape, np.float32) for w in model.get_weights()])
    variables = list(model.trainable_variables)
    if lists_of_variables:
        options = {**options, "groups": [[variables[3], variables[0]]]}
    compressed = []

    class Counting:
        @staticmethod
        def compress(tensor):
            compressed.append(tuple(tensor.shape))
            return tensor, None

        @staticmethod
        def decompress(tensor, context):
            return tensor

    where, name = {
        "tensorflow": ("horovod.tensorflow._forms", "run_group"),
        "torch": ("horovod.torch", "grouped_allreduce_async_"),
        "jax": ("horovod.jax", "grouped_allreduce"),
    }[backend]
    module = importlib.import_module(where)
    original, groups = getattr(module, name), []

    def spy(*args, **kwargs):
        groups.append(len(next(a for a in args if isinstance(a, (list, tuple)) and not hasattr(a, "verb"))))
        return original(*args, **kwargs)

    optimizer = hvd.DistributedOptimizer(optimizers.SGD(1.0), compression=Counting, **options)
    values = [np.full(v.shape, times * (hvd.rank() + i), np.float32) for i, v in enumerate(variables)]
    if legacy:
        import tensorflow as tf

        gradients = [tf.constant(v) for v in values]
    else:
        gradients = [keras.ops.convert_to_tensor(v) for v in values]
    setattr(module, name, spy)
    try:
        optimizer.apply_gradients(zip(gradients, variables))
    finally:
        setattr(module, name, original)
    return [float(np.ravel(w)[0]) for w in model.get_weights()], groups, compressed


MEANS = [-0.5, -1.5, -2.5, -3.5]
SHAPES = [(3, 2), (2,), (2, 1), (1,)]


@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_a_number_of_gradients_are_reduced_together(kind):
    for weights, groups, _ in run(kind, honoured, {"groups": 2}, False):
        assert weights == MEANS
        assert groups == [2, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_variables_are_reduced_together(kind):
    for weights, groups, _ in run(kind, honoured, {}, True):
        assert weights == MEANS
        assert max(groups) == 2 and sum(g > 1 for g in groups) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_compressor_is_used(kind):
    for weights, _, compressed in run(kind, honoured, {}, False):
        assert weights == MEANS
        assert sorted(compressed) == sorted(SHAPES)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_divided_by_the_predivide_factor_before_they_are_added_up(kind):
    too_much = float("-inf")  # float32 ends at 3.4e38; 1.6e38 + 2.4e38 fit when halved first
    expected = {1.0: [-0.4e38, -1.2e38, too_much, too_much], 2.0: [-0.4e38, -1.2e38, -2e38, -2.8e38]}
    for factor, sums in expected.items():
        for weights, _, _ in run(kind, honoured, {"gradient_predivide_factor": factor}, False, 0.8e38):
            assert weights == pytest.approx(sums)


def sparse_on_torch():
    import torch

    import horovod.keras as hvd
    from horovod._keras.backends import reduction
    from horovod._keras.settings import Settings

    row = torch.tensor([[hvd.rank()]])
    gradient = torch.sparse_coo_tensor(row, torch.ones(1, 2) * (hvd.rank() + 1), (3, 2))
    results = []
    for dense in (True, False):
        (reduced,) = reduction(Settings(sparse_as_dense=dense), "torch", f"sparse{dense}")(
            [gradient], None, False
        )
        results.append((reduced.is_sparse, (reduced.to_dense() if reduced.is_sparse else reduced).tolist()))
    return results


def test_sparse_as_dense_on_torch():
    values = [[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]]
    assert run("torch", sparse_on_torch) == [[(False, values), (True, values)]] * 2
