# SPDX-License-Identifier: Apache-2.0
"""Elastic state in a world that does not change: commit, restore, sync, and starting again."""

from __future__ import annotations

from typing import Any, List
from unittest import mock

import pytest
import torch
from tests_support import run_world, shared_world
from torch_training import batches, net, plain_step, sgd


def state() -> None:
    import horovod.torch as hvd

    model = net(seed=hvd.rank())
    optimizer = sgd(model.parameters())
    sampler = hvd.elastic.ElasticSampler(range(10), shuffle=False)
    kept = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=hvd.rank() + 5, other=None)
    assert kept.model is model and kept.optimizer is optimizer and kept.sampler is sampler
    assert kept.epoch == hvd.rank() + 5 and kept.other is None
    kept.sync()
    assert kept.epoch == 5
    weights = hvd.allgather_object(model[0].weight.tolist())
    assert weights[0] == weights[1]
    before = model[0].weight.detach().clone()
    kept.commit()
    plain_step(model, optimizer, *batches()[0])
    sampler.record_batch(0, 2)
    kept.epoch = 9
    assert sampler.processed_num == 4 and optimizer.state
    kept.restore()
    assert torch.equal(model[0].weight, before) and kept.epoch == 5
    assert sampler.processed_num == 0 and not optimizer.state_dict()["state"]
    kept.model = net(seed=7)
    assert kept.model is not model
    with torch.no_grad():
        kept.model[0].weight.zero_()
    kept.restore()  # an assigned value was saved at once
    torch.testing.assert_close(kept.model[0].weight, net(seed=7)[0].weight)
    with pytest.raises(AttributeError):
        kept.missing  # noqa: B018


def sampler() -> List[int]:
    import horovod.torch as hvd

    ElasticSampler = hvd.elastic.ElasticSampler
    made = ElasticSampler(range(7), shuffle=False)
    n = hvd.size()
    assert len(made) == -(-7 // n) and made.num_replicas == n and made.rank == hvd.rank()
    parts = hvd.allgather_object(list(made))
    assert set(sum(parts, [])) == set(range(7)) and len({len(p) for p in parts}) == 1
    made.record_batch(0, 1)
    saved = made.state_dict()
    assert saved == {"epoch": 0, "processed_num": n}
    other = ElasticSampler(range(7), shuffle=False)
    other.load_state_dict(saved)
    assert other.remaining_indices == list(range(n, 7))
    shuffled = ElasticSampler(range(100), seed=3)
    first = list(shuffled)
    shuffled.set_epoch(1)
    assert list(shuffled) != first and shuffled.processed_num == 0
    tiny = ElasticSampler(range(1), shuffle=False)
    assert list(tiny) == [0]
    loader = torch.utils.data.DataLoader(torch.arange(7), batch_size=2, sampler=other)
    return torch.cat(list(loader)).tolist()


@pytest.mark.parametrize("size", [2, 3])
def test_sampler(size):
    parts = shared_world(size).run(sampler, timeout=300)
    assert set(sum(parts, [])) == set(range(size, 7))


def test_state():
    shared_world(2).run(state, timeout=300)


def synchronised() -> List[Any]:
    """What a newcomer got is what it goes back to, before any commit of its own."""
    import horovod.torch as hvd

    model = net(seed=hvd.rank())
    kept = hvd.elastic.TorchState(model, sgd(model.parameters()), epoch=hvd.rank())
    kept.sync()
    with torch.no_grad():
        model[0].weight.zero_()
    kept.restore()
    return [model[0].weight.tolist(), kept.epoch]


def test_what_was_synchronised_is_kept():
    first, second = shared_world(2).run(synchronised, timeout=300)
    assert first == second == [net(seed=0)[0].weight.tolist(), 0]


def handlers() -> None:
    import horovod.torch as hvd
    from horovod.torch.elastic.state import StateHandler, get_handler_registry, set_handler_registry

    class Counter:
        def __init__(self) -> None:
            self.count = hvd.rank()

    class CounterHandler(StateHandler):
        def save(self) -> None:
            self.saved = self.value.count

        def restore(self) -> None:
            self.value.count = self.saved

        def sync(self) -> None:
            self.value.count = hvd.broadcast_object(self.value.count)

    before = get_handler_registry()
    set_handler_registry([*before, (Counter, CounterHandler)])
    try:
        counter = Counter()
        kept = hvd.elastic.TorchState(counter=counter)
        kept.sync()
        assert counter.count == 0
        kept.commit()
        counter.count = 8
        kept.restore()
        assert counter.count == 0
    finally:
        set_handler_registry(before)


def test_own_handlers():
    shared_world(2).run(handlers, timeout=300)


def starts_again() -> Any:
    """A failed collective restores the last commit and re-forms the job."""
    import horovod.torch as hvd

    hvd.init()
    model = net(seed=hvd.rank())
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    resets = []
    calls = []

    @hvd.elastic.run
    def train(state, limit):
        calls.append(state.step)
        while state.step < limit:
            plain_step(model, optimizer, *batches()[state.step % 4])
            state.step += 1
            if state.step == 4 and len(calls) == 1:
                raise hvd.HorovodInternalError("as if a peer had died")
            if state.step % 3 == 0:
                state.commit()
        return state.step

    kept = hvd.elastic.TorchState(model, optimizer, step=0)
    kept.register_reset_callbacks([lambda: resets.append(hvd.size())])
    assert train(kept, 6) == 6
    weights = hvd.allgather_object(model[0].weight.tolist())
    assert weights[0] == weights[1]
    return calls, resets


def test_starts_again_after_a_failure():
    assert run_world(starts_again, 2) == [([0, 3], [2])] * 2


def lost_in_backward() -> None:
    import horovod.torch as hvd
    from horovod.common.exceptions import HorovodInternalError

    model = net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    kept = hvd.elastic.TorchState(model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.7

    flight = type(optimizer._hvd.reducer.flight)
    with mock.patch.object(
        flight, "send_quick", side_effect=HorovodInternalError("Horovod lost rank 1")
    ) as send:
        kept.restore()
    assert send.called
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_an_optimizer_is_restored_after_the_job_was_lost_in_the_middle_of_a_backward():
    """Gradients that were ready, and cannot be sent any more, are no reason not to restore."""
    run_world(lost_in_backward, 1)
