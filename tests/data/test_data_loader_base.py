# SPDX-License-Identifier: Apache-2.0
"""Loaders of one's own, with and without a thread."""

from __future__ import annotations

import threading

import pytest

from horovod.data import AsyncDataLoaderMixin, BaseDataLoader


class Numbers(BaseDataLoader):
    def __init__(self, count, fail_at=None):
        self.count = count
        self.fail_at = fail_at

    def __len__(self):
        return self.count

    def _iterate(self):
        for i in range(self.count):
            if i == self.fail_at:
                raise ValueError(f"no {i}")
            yield i

    def _process_batch(self, batch):
        return batch * 10


class AsyncNumbers(AsyncDataLoaderMixin, Numbers):
    pass


@pytest.mark.parametrize("queue_size", [0, 1, 64])
def test_epochs(queue_size):
    loader = AsyncNumbers(async_loader_queue_size=queue_size, count=5)
    for _ in range(3):
        assert list(loader) == list(Numbers(5)) == [0, 10, 20, 30, 40]
    assert len(loader) == 5
    loader.close_async_loader()
    assert list(loader) == [0, 10, 20, 30, 40]
    loader.close_async_loader()


def test_none_is_a_batch_too():
    class Nothing(AsyncDataLoaderMixin, BaseDataLoader):
        def __len__(self):
            return 2

        def _iterate(self):
            yield from [None, None]

    loader = Nothing(async_loader_queue_size=4)
    assert list(loader) == [None, None]
    loader.close_async_loader()


@pytest.mark.parametrize("queue_size", [0, 2])
def test_errors_come_where_the_batch_would(queue_size):
    loader = AsyncNumbers(queue_size, False, 5, fail_at=2)
    for _ in range(2):
        seen = []
        with pytest.raises(ValueError, match="no 2"):
            for batch in loader:
                seen.append(batch)
        assert seen == [0, 10]
    loader.close_async_loader()


def test_closing_stops_the_thread(capsys):
    loader = AsyncNumbers(async_loader_queue_size=1, debug_data_loader=True, count=1000)
    assert next(iter(loader)) == 0
    loader.close_async_loader()
    assert not [one for one in threading.enumerate() if one.name == "horovod-async-loader"]
    assert "async loader: thread started" in capsys.readouterr().out


def test_what_a_loader_must_have():
    loader = BaseDataLoader()
    with pytest.raises(NotImplementedError):
        len(loader)
    with pytest.raises(NotImplementedError):
        list(loader)
