# SPDX-License-Identifier: Apache-2.0
"""Who has registered, and what is refused."""

from __future__ import annotations

import pytest

from horovod.data.compute_registry import ComputeRegistry


@pytest.mark.parametrize("count", [0, -1])
def test_somebody_must_come(count):
    with pytest.raises(ValueError, match=f"^The number of dispatchers must be larger than 0: {count}$"):
        ComputeRegistry(count, 1)
    with pytest.raises(
        ValueError, match=f"^The number of workers per dispatcher must be larger than 0: {count}$"
    ):
        ComputeRegistry(1, count)


def test_dispatchers():
    registry = ComputeRegistry(2, 1)
    assert registry.dispatcher(1) is None
    registry.register_dispatcher(1, "grpc://a:1")
    registry.register_dispatcher(1, "grpc://a:1")
    assert registry.dispatcher(1) == "grpc://a:1" and registry.dispatcher(0) is None
    said = r"Dispatcher with id 1 has already been registered under different address grpc://a:1: grpc://b:1"
    with pytest.raises(ValueError, match=said):
        registry.register_dispatcher(1, "grpc://b:1")
    assert registry.dispatcher(1) == "grpc://a:1"


def test_workers():
    registry = ComputeRegistry(2, 2)
    for worker in (5, 5):
        registry.register_worker(0, worker)
    assert not registry.complete(0)
    registry.register_worker(0, 7)
    assert registry.complete(0) and not registry.complete(1)


@pytest.mark.parametrize("number", [-1, 2, 100])
@pytest.mark.parametrize(
    "call", [lambda r, n: r.register_dispatcher(n, "a"), lambda r, n: r.register_worker(n, 0),
             lambda r, n: r.dispatcher(n), lambda r, n: r.complete(n)],
)  # fmt: skip
def test_no_such_dispatcher(call, number):
    with pytest.raises(IndexError, match=rf"^Dispatcher id must be within \[0\.\.1\]: {number}$"):
        call(ComputeRegistry(2, 1), number)
