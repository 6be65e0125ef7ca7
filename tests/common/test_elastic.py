# SPDX-License-Identifier: Apache-2.0
"""State and the loop around the training function, without any hosts that change."""

from __future__ import annotations

import os
import pickle

import pytest
from tests_support import run_world

from horovod.common import elastic
from horovod.common.checkpoint import checkpoint
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt, RanksDisagree


class Recorded(elastic.State):
    """Notes what happens to it."""

    def __init__(self):
        super().__init__(bcast_object=lambda obj: obj, get_rank=lambda: 0)
        self.events = []

    def save(self):
        self.events.append("save")

    def restore(self):
        self.events.append("restore")

    def sync(self):
        self.events.append("sync")

    def reset(self):
        self.events.append("reset")


def run(state, script):
    """Runs a function that raises each entry of the script in turn, then returns."""
    steps = iter(script)

    def train(given, value):
        assert given is state
        for error in steps:
            raise error
        return value

    return elastic.run_fn(train, lambda: state.events.append("re-init"))(state, 42)


def test_a_run_without_trouble_synchronises_once():
    state = Recorded()
    assert run(state, []) == 42
    assert state.events == ["sync"]


def test_a_failed_collective_restores_and_synchronises():
    state = Recorded()
    assert run(state, [HorovodInternalError("x")]) == 42
    assert state.events == ["sync", "restore", "re-init", "reset", "sync"]


@pytest.mark.parametrize("skip", [False, True])
def test_changed_hosts_keep_values_and_may_skip_the_sync(skip):
    state = Recorded()
    assert run(state, [HostsUpdatedInterrupt(skip)]) == 42
    assert state.events == ["sync", "re-init", "reset"] + ([] if skip else ["sync"])


def test_other_errors_pass_and_the_listener_is_removed():
    state = Recorded()
    with pytest.raises(KeyError):
        run(state, [KeyError("x")])
    assert state not in elastic.notification_manager._listeners


def test_reset_callbacks_run_in_order_after_the_reset():
    state = Recorded()
    state.register_reset_callbacks([lambda: state.events.append("a"), lambda: state.events.append("b")])
    state.on_reset()
    assert state.events == ["reset", "a", "b"]


@pytest.mark.parametrize("changes, skip", [([1], True), ([2], False), ([1, 2], False), ([1, 1], True)])
def test_commit_interrupts_when_hosts_changed(changes, skip):
    state = Recorded()
    state.commit()
    for timestamp, change in enumerate(changes, 1):
        state.on_hosts_updated(timestamp, change)
    with pytest.raises(HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync is skip
    state.commit()  # told once
    state.on_hosts_updated(1, 2)
    state.commit()  # old news


def test_news_is_dropped_by_a_reset():
    state = Recorded()
    state.on_hosts_updated(1, 2)
    state.on_reset()
    state.commit()


def test_object_state_saves_restores_and_synchronises():
    sent = []

    def broadcast(value):
        sent.append(dict(value))
        return {"epoch": 7, "batch": 3}

    state = elastic.ObjectState(bcast_object=broadcast, get_rank=lambda: 0, epoch=1, batch=0)
    state.epoch = 2
    state.restore()
    assert state.epoch == 1
    state.epoch = 2
    state.save()
    state.epoch = 9
    state.restore()
    assert state.epoch == 2
    state.sync()
    assert sent == [{"epoch": 2, "batch": 0}]
    assert (state.epoch, state.batch) == (7, 3)
    state.batch = 0
    state.restore()
    assert state.batch == 3


def train_with_a_mishap(reset):
    """What it returns, and how often the engine stopped on the way."""
    import horovod.numpy as hvd
    from horovod.common.basics import basics
    from horovod.common.elastic import ObjectState, run_fn

    hvd.init()
    state = ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, batch=0, total=0.0)
    mishaps, stops = [], []
    basics.at_shutdown(lambda: stops.append(1))

    def train(state):
        while state.batch < 10:
            if state.batch == 5 and not mishaps:
                mishaps.append(1)
                state.total = -1.0
                raise HorovodInternalError("a mishap")
            state.total += float(hvd.allreduce(1.0, op=hvd.Sum, name="step"))
            state.batch += 1
            state.commit()
        return state.total

    def shutdown_and_init():
        hvd.shutdown()
        hvd.init()

    resets = {"shutdown and init": shutdown_and_init, "init": hvd.init}
    return run_fn(train, resets[reset])(state), len(stops)


@pytest.mark.parametrize("reset", ["shutdown and init", "init"])
def test_training_goes_on_after_a_mishap_on_all_ranks(reset):
    """In a new world, once: `init` alone would leave a broken one as it is."""
    assert run_world(train_with_a_mishap, 2, args=(reset,)) == [(20.0, 1), (20.0, 1)]


def test_check_host_updates_saves_before_it_interrupts():
    """Else the next world would go on with the values of the last commit and the weights of now."""
    state = Recorded()
    state.check_host_updates()
    assert state.events == []
    state.on_hosts_updated(1, 2)
    with pytest.raises(HostsUpdatedInterrupt):
        state.check_host_updates()
    assert state.events == ["save"]


def test_a_mismatch_is_not_tried_again():
    state = Recorded()
    with pytest.raises(RanksDisagree):
        run(state, [RanksDisagree("shapes differ"), HorovodInternalError("never reached")])
    assert state.events == ["sync"]


def come_together_for_different_reasons():
    """Rank 0 heard of a removed host and would skip the synchronisation, rank 1 lost a peer: they differ."""
    import horovod.numpy as hvd
    from horovod.common.elastic import ObjectState, run_fn

    hvd.init()
    state = ObjectState(bcast_object=hvd.broadcast_object, get_rank=hvd.rank, value=hvd.rank())
    calls = []

    def train(state):
        calls.append(state.value)
        state.value += 1
        if len(calls) == 1:
            state.value += 10 * hvd.rank()
            hvd.barrier()
            raise HostsUpdatedInterrupt(True) if hvd.rank() == 0 else HorovodInternalError("lost")
        return float(hvd.allreduce(float(state.value), op=hvd.Sum, name="sum"))

    return run_fn(train, lambda: (hvd.shutdown(), hvd.init()))(state), calls


def test_issue_3494():
    """Survivors that would skip the synchronisation and newcomers that need it decide alike."""
    (first, calls), (second, others) = run_world(come_together_for_different_reasons, 2)
    assert first == second and calls[1] == others[1] == 0, "both have what rank 0 saved last"


class Kept(elastic.ObjectState):
    """A state that is alone."""

    def __init__(self, **values):
        super().__init__(bcast_object=lambda obj: obj, get_rank=lambda: 0, **values)


def test_a_checkpoint_is_found_again(tmp_path):
    path = str(tmp_path / "state")
    state = checkpoint(Kept(step=0, notes=["a"]), path, every=2)
    state.sync()
    for step in range(1, 6):
        state.step = step
        state.commit()
    state.commit.__self__._writer.join()
    assert sorted(os.listdir(tmp_path)) == ["state"], "nothing is left of the writing"
    again = checkpoint(Kept(step=0, notes=[]), path, every=2)
    again.sync()
    assert (again.step, again.notes, again._commits) == (4, ["a"], 4)
    again.step = 9
    again.restore()
    assert again.step == 4
    with pytest.raises(ValueError, match="must be 1 or more"):
        checkpoint(again, path, every=0)


def test_a_checkpoint_that_cannot_be_written_does_not_stop_the_training(tmp_path, caplog):
    state = checkpoint(Kept(step=0), str(tmp_path / "missing" / "state"), every=1)
    state.sync()
    state.commit()
    state.commit.__self__._writer.join()
    assert "cannot write the checkpoint" in caplog.text


def test_a_broken_checkpoint_is_an_error(tmp_path):
    (tmp_path / "state").write_bytes(pickle.dumps({"format": 99}))
    state = checkpoint(Kept(step=0), str(tmp_path / "state"))
    with pytest.raises(ValueError, match="is not a checkpoint of this version"):
        state.sync()
