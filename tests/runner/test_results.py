# SPDX-License-Identifier: Apache-2.0
"""Functions, results and exceptions through the store, as any scheduler's tasks may use it."""

from __future__ import annotations

import threading

import pytest

from horovod.common.exceptions import HorovodInternalError
from horovod.rendezvous.auth import make_secret
from horovod.rendezvous.store import StoreClient
from horovod.rendezvous.store_server import StoreServer
from horovod.runner import results


class Here:
    """A store, and ranks that are nothing but calls."""

    def __init__(self):
        self.store = StoreServer(make_secret())

    def call(self, rank):
        def connect():
            return StoreClient(self.store.address, self.store.port, self.store.secret, host="far")

        return results.call_published(connect, rank)


@pytest.fixture
def here():
    made = Here()
    yield made
    made.store.close()


def test_results_come_back_in_rank_order(here):
    results.publish(here.store, results.pickled(lambda base, *, step: base + step, (40,), {"step": 2}))
    assert [here.call(rank) for rank in (1, 0)] == [0, 0]
    assert results.collect(here.store, 2) == [42, 42]


def test_exceptions_come_back_with_their_traceback(here, capsys):
    results.publish(here.store, results.pickled(lambda: {}["missing"], (), None))
    assert here.call(3) == 1 and "KeyError: 'missing'" in capsys.readouterr().err
    with pytest.raises(KeyError, match="missing") as caught:
        results.raise_remote_error(here.store, 3, "node7")
    assert "rank 3 on host node7 raised" in str(caught.value.__cause__)
    results.raise_remote_error(here.store, 3, "node7")  # nothing is left to raise


def test_exceptions_that_cannot_travel_come_back_as_text(here, capsys):
    def fail():
        error = ValueError("stuck")
        error.lock = threading.Lock()
        raise error

    results.publish(here.store, results.pickled(fail, (), None))
    assert here.call(0) == 1 and "stuck" in capsys.readouterr().err
    with pytest.raises(RuntimeError, match="(?s)rank 0 on host node7 raised.*ValueError: stuck"):
        results.raise_remote_error(here.store, 0, "node7")


def test_a_rank_without_a_result_is_named(here):
    with pytest.raises(RuntimeError, match="rank 0 ended without returning a result"):
        results.collect(here.store, 1)


def test_the_cause_is_raised_if_nobody_says_who_failed_first(here, capsys):
    def fail(errors):
        raise errors.pop(0)

    for rank, error in ((0, HorovodInternalError("rank 2 died")), (2, ZeroDivisionError("on purpose"))):
        results.publish(here.store, results.pickled(fail, ([error],), None))
        assert here.call(rank) == 1
    with pytest.raises(ZeroDivisionError) as caught:
        results.raise_first_error(here.store, ["a", "b", "c"])
    assert "rank 2 on host c raised" in str(caught.value.__cause__)
    results.raise_first_error(here.store, ["a", "b", "c"])  # nothing is left to raise
