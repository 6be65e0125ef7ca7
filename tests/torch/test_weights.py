# SPDX-License-Identifier: Apache-2.0
"""Ranks that do not train the same model are told so after the first step."""

from __future__ import annotations

import warnings
from typing import Any, List, Optional

import pytest
import torch
from tests_support import shared_world
from torch_training import distributed, net, plain_step, sgd, shards

from horovod.common.weights import difference, of_array, record_of
from horovod.torch._weights import fingerprints


def warned(start: str, **kwargs: Any) -> List[str]:
    """What a training says about weights; it goes on until they were compared."""
    import horovod.torch as hvd

    model = net(seed=0 if start == "same" else hvd.rank())
    optimizer = distributed(hvd, model, **kwargs)
    if start == "broadcast":
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(500):
            plain_step(model, optimizer, *shards(hvd.rank(), hvd.size())[0])
            over = hvd.allgather_object(optimizer._hvd.weight_check.over)
            if all(over):
                break
    assert all(over)
    return [f"{one.filename}: {one.message}" for one in caught if "weights" in str(one.message)]


@pytest.mark.parametrize("start", ["same", "broadcast"])
@pytest.mark.parametrize("op", ["Average", "Adasum"])
def test_the_same_weights_pass_in_silence(start, op):
    def case() -> List[str]:
        import horovod.torch as hvd

        return warned(start, op=getattr(hvd, op))

    assert shared_world(2).run(case) == [[], []]


@pytest.mark.parametrize("passes", [1, 2])
def test_a_missing_broadcast_is_reported_by_the_first_rank(passes):
    def case() -> List[str]:
        return warned("different", backward_passes_per_step=passes)

    (text,), *others = shared_world(3).run(case)
    assert others == [[], []]
    assert "differ after the first step: those of ranks 1, 2 are not rank 0's" in text
    assert "hvd.broadcast_parameters(model.state_dict(), root_rank=0)" in text
    assert text.startswith(torch_training_file()), "the warning shows the line of the script that steps"


def torch_training_file() -> str:
    import torch_training

    return str(torch_training.__file__)


def gradients_not_reduced() -> Optional[str]:
    """The wrapped optimizer is there, but on one rank another one steps too."""
    import horovod.torch as hvd

    model = net()
    optimizer = distributed(hvd, model)
    stray = sgd(model.parameters())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(500):
            x, y = shards(hvd.rank(), hvd.size())[0]
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            if hvd.rank() == 1:
                stray.step()
            optimizer.step()
            if all(hvd.allgather_object(optimizer._hvd.weight_check.over)):
                break
    found = [str(one.message) for one in caught if "weights differ" in str(one.message)]
    return found[0] if found else None


def test_a_rank_that_steps_more_often_is_reported():
    text, other = shared_world(2).run(gradients_not_reduced)
    assert text is not None and "those of rank 1 are not rank 0's" in text and other is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_fingerprints_are_those_of_numpy_and_see_every_element(dtype):
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4).to(getattr(torch, dtype)))
    (one,) = fingerprints({weight: "w"})
    if dtype not in (
        "bfloat16",
        "complex64",
    ):  # NumPy lacks the one, and reads the other's magnitude otherwise
        assert one == pytest.approx(of_array("w", weight.detach().numpy()))
    for i in range(12):
        changed = torch.nn.Parameter(weight.detach().clone())
        changed.data.view(-1)[i] += 2
        (other,) = fingerprints({changed: "w"})
        assert other.bits != one.bits


def test_frozen_and_empty_parameters_are_left_out():
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    empty, trained = torch.nn.Parameter(torch.ones(0)), torch.nn.Parameter(torch.ones(2))
    prints = fingerprints({frozen: "a", empty: "b", trained: "c"})
    assert [one.name for one in prints] == ["c"]
    assert difference(prints, [record_of(prints)] * 2, [0, 1]) == ""
