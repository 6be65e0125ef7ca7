# SPDX-License-Identifier: Apache-2.0
"""What ranks processed in an epoch, after any sequence of deaths, joins and departures: every index."""

from __future__ import annotations

from collections import Counter
from typing import Any, List

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod.torch.elastic import sampler as module
from horovod.torch.elastic.sampler import ElasticSampler


class Ranks:
    """The samplers of a job's ranks, without the job: who am I is whatever `act` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, length: int, size: int, seed: int) -> None:
        self.monkeypatch, self.length, self.seed = monkeypatch, length, seed
        self.samplers: List[ElasticSampler] = []
        self.done: List[int] = []  # what counts, in order
        for _ in range(size):
            self.join_one(size)
        self.commit()
        self.iterate()

    def as_rank(self, rank: int, size: int) -> None:
        self.monkeypatch.setattr(module, "rank", lambda: rank)
        self.monkeypatch.setattr(module, "size", lambda: size)

    def join_one(self, size: int) -> None:
        self.as_rank(len(self.samplers), size)
        self.samplers.append(ElasticSampler(range(self.length), seed=self.seed))

    def commit(self) -> None:
        self.saved: Any = self.samplers[0].state_dict()
        self.committed = len(self.done)

    def iterate(self) -> None:
        self.iterators = [iter(one) for one in self.samplers]

    def step(self, batch: int) -> bool:
        """One batch on every rank; False at the end of the epoch."""
        batches = [[index for _, index in zip(range(batch), one)] for one in self.iterators]
        if not batches[0]:
            return False
        assert len({len(one) for one in batches}) == 1, "every rank has as many"
        for number, one in enumerate(self.samplers):
            one.record_batch(0, len(batches[number]))
        self.done += [index for one in batches for index in one]
        return True

    def lose(self, count: int) -> None:
        """Deaths: survivors restore the last commit, share what is left, and synchronise."""
        del self.done[self.committed :]
        self.re_form(max(len(self.samplers) - count, 1), self.saved)

    def change(self, size: int) -> None:
        """Hosts come or go: at a commit, nothing is lost."""
        self.commit()
        self.re_form(size, self.saved)

    def re_form(self, size: int, state: Any) -> None:
        del self.samplers[size:]
        for number, one in enumerate(self.samplers):
            self.as_rank(number, size)
            one.load_state_dict(state)
            one.reset()
        while len(self.samplers) < size:
            self.join_one(size)
        for number, one in enumerate(self.samplers):
            self.as_rank(number, size)
            one.load_state_dict(state)
        self.iterate()


STORY = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(1, 4)),
        st.tuples(st.just("commit"), st.just(0)),
        st.tuples(st.just("lose"), st.integers(1, 3)),
        st.tuples(st.just("change"), st.integers(1, 6)),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 60), st.integers(1, 6), STORY, st.integers(0, 9))
def test_issue_3143_and_3399(length, size, story, seed):
    """No index is lost, and none is seen twice but those that fill up the last batch of an epoch."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        ranks = Ranks(monkeypatch, length, size, seed)
        for what, number in story:
            if what == "commit":
                ranks.commit()
            else:
                getattr(ranks, what)(number)
        while ranks.step(3):
            pass
        counts = Counter(ranks.done)
        assert set(counts) == set(range(length)), "every index was processed"
        assert sum(counts.values()) - length < max(len(one) for one in (ranks.samplers, range(6)))


def test_issue_3399(monkeypatch):
    """A graceful change in the middle of an epoch repeats nothing."""
    ranks = Ranks(monkeypatch, 40, 4, seed=1)
    ranks.step(2)
    ranks.change(2)
    ranks.step(4)
    ranks.change(3)
    seen = Counter(ranks.done)
    assert len(ranks.done) == 16 and max(seen.values()) == 1
    while ranks.step(4):
        pass
    assert max(Counter(ranks.done).values()) == 1 and len(ranks.done) == 40, "24 left for 3 ranks: no padding"
