# SPDX-License-Identifier: Apache-2.0
"""The reader on real files: every rank's batches, places saved and resumed, threads, caches, errors."""

from __future__ import annotations

import json
import pickle
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parquet_files import in_memory, write

from horovod.data import ParquetReader

GROUPS = [30, 7, 0, 50, 13, 25]  # 125 rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write(str(tmp_path_factory.mktemp("data") / "set"), GROUPS)


def ids(batches):
    return [int(i) for batch in batches for i in batch["id"]]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(lambda rows: sum(rows) >= 8),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    batch_sizes=st.lists(st.integers(1, 40), min_size=3, max_size=3),
    shuffle=st.booleans(),
    cache=st.booleans(),
    drop_last=st.booleans(),
    window=st.integers(1, 60),
    data=st.data(),
)
def test_any_interruptions(rows, sizes, batch_sizes, shuffle, cache, drop_last, window, data):
    """Jobs of different sizes take turns in an epoch: equal steps, rows intact, none twice."""
    url, state, seen = in_memory(rows), None, []
    for number, size in enumerate(sizes):
        readers = [
            ParquetReader(
                url,
                batch_size=batch_sizes[number],
                rank=rank,
                size=size,
                shuffle=shuffle,
                cache=cache,
                drop_last=drop_last,
                window=window,
                read_ahead=rank % 3,
                prefetch=rank % 2,
            )
            for rank in range(size)
        ]
        for reader in readers:
            if state is not None:
                reader.load_state_dict(json.loads(json.dumps(state)))
        if readers[0].epoch == 1 or sum(rows) - len(seen) < size:
            return
        steps = len(readers[0])
        stop = data.draw(st.integers(0, steps)) if number < len(sizes) - 1 else steps
        states = []
        for reader in readers:
            assert len(reader) == steps
            taken = []
            iterator = iter(reader)
            for _ in range(stop):
                batch = next(iterator)
                taken.append(batch)
                assert (batch["x"][:, 0] == batch["id"]).all() and (batch["x"][:, 1] == -batch["id"]).all()
                assert batch["text"].tolist() == [str(i) for i in batch["id"]]
            states.append(reader.state_dict())
            if stop == steps:
                assert next(iterator, None) is None and reader.epoch == 1
            iterator.close()
            seen += ids(taken)
        assert all(one == states[0] for one in states)
        assert len(set(seen)) == len(seen) <= sum(rows)
        state = states[0]
    if not drop_last:
        assert sum(rows) - len(seen) < sizes[-1]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_of_an_epoch(folder, size, drop_last):
    readers = [
        ParquetReader(folder, batch_size=8, rank=rank, size=size, drop_last=drop_last) for rank in range(size)
    ]
    by_rank = [[len(batch["id"]) for batch in reader] for reader in readers]
    share = 125 // size
    rest = [] if drop_last else [share % 8]
    assert by_rank == [[8] * (share // 8) + rest] * size


def test_epochs_differ_and_repeat(folder):
    reader = ParquetReader(folder, ["id"], batch_size=10, rank=0, size=1, window=40)
    epochs = [ids(reader) for _ in range(3)]
    assert all(sorted(epoch) == list(range(125)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] and reader.epoch == 3
    reader.set_epoch(1)
    assert ids(reader) == epochs[1]
    assert ids(ParquetReader(folder, ["id"], seed=1)) != epochs[0]
    assert ids(ParquetReader(folder, ["id"], shuffle=False)) == list(range(125))


def test_an_iteration_given_up_starts_again(folder):
    """A look at the first batch must not cost one rank a step that the others have."""
    reader = ParquetReader(folder, ["id"], batch_size=10)
    first = next(iter(reader))
    assert ids([first]) == ids(reader)[:10]


def test_state_by_steps_used(folder):
    """tf.data and the like fetch ahead: the place is where the training is."""
    reader = ParquetReader(folder, ["id"], batch_size=10)
    order = ids(reader)
    again = ParquetReader(folder, ["id"], batch_size=10)
    again.load_state_dict(reader.state_dict(steps=4))
    assert sorted(order[:40] + ids(again)) == list(range(125))
    assert reader.state_dict()["epoch"] == reader.state_dict(steps=13)["epoch"] == 1
    assert reader.state_dict(steps=0) == ParquetReader(folder).state_dict()


def test_a_place_in_other_data(folder):
    state = ParquetReader(folder).state_dict()
    with pytest.raises(ValueError, match="125 rows in 6 row groups then, 9 rows in 1 row groups now"):
        ParquetReader(in_memory([9], 1)).load_state_dict(state)
    with pytest.raises(ValueError, match="not a place"):
        ParquetReader(folder).load_state_dict({})


def test_cache_reads_once(tmp_path):
    url = write(str(tmp_path / "set"), GROUPS)
    reader = ParquetReader(url, ["id"], batch_size=10, rank=1, size=2, cache=True)
    first = ids(reader)
    for file in (tmp_path / "set").iterdir():
        file.unlink()
    second, third = ids(reader), ids(reader)
    assert sorted(first) == sorted(second) == sorted(third)
    assert first != second != third


def test_transform_and_example(folder):
    def transform(batch):
        return batch["x"] * 2, batch["id"]

    reader = ParquetReader(folder, ["x", "id"], transform=transform, prefetch=2, shuffle=False)
    x, y = next(iter(reader))
    np.testing.assert_array_equal(x[:, 0], 2 * y)
    x, y = reader.example(rows=3)
    assert y.tolist() == [0, 1, 2] and reader.epoch == 0


@pytest.mark.parametrize("prefetch", [0, 3])
def test_errors_of_a_transform_reach_the_loop(folder, prefetch):
    def transform(batch):
        if 12 in batch["id"]:
            raise KeyError("twelve")
        return batch

    reader = ParquetReader(folder, batch_size=5, shuffle=False, transform=transform, prefetch=prefetch)
    seen = []
    with pytest.raises(KeyError, match="twelve"):
        for batch in reader:
            seen += ids([batch])
    assert seen == list(range(10))


def test_no_threads_are_left(folder):
    before = set(threading.enumerate())
    for _ in range(3):
        iterator = iter(ParquetReader(folder, batch_size=5, prefetch=2, window=10))
        next(iterator)
        iterator.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before


def test_a_copy_for_another_process(folder):
    reader = ParquetReader(folder, ["id"], rank=0, size=2, cache=True)
    first = ids(reader)
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.epoch == 1
    copy.set_epoch(0)
    assert ids(copy) == first


def test_forever(folder):
    batches = ParquetReader(folder, ["id"], batch_size=125).forever()
    assert all(sorted(ids([next(batches)])) == list(range(125)) for _ in range(3))


def test_one_file_several_files_and_partitions(tmp_path):
    table = pa.table({"id": np.arange(6), "half": np.arange(6) // 3})
    pq.write_to_dataset(table, str(tmp_path / "parts"), partition_cols=["half"])
    reader = ParquetReader(tmp_path / "parts", ["half", "id"], shuffle=False)
    (batch,) = reader
    assert list(batch) == ["half", "id"] and batch["half"].tolist() == [0, 0, 0, 1, 1, 1]
    files = sorted(str(path) for path in (tmp_path / "parts").rglob("*.parquet"))
    assert sorted(ids(ParquetReader(files))) == list(range(6))
    assert sorted(ids(ParquetReader("file://" + files[1]))) == [3, 4, 5]


def test_errors(folder, tmp_path):
    with pytest.raises(ValueError, match="has no column y; it has id, x, text"):
        len(ParquetReader(folder, ["id", "y"]))
    with pytest.raises(FileNotFoundError, match="nowhere"):
        len(ParquetReader(str(tmp_path / "nowhere")))
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no Parquet files in"):
        len(ParquetReader(str(tmp_path / "empty")))
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(ValueError, match="cannot read .*text.parquet as Parquet"):
        len(ParquetReader(str(tmp_path / "text.parquet")))
    with pytest.raises(ValueError, match="has 125 rows left in epoch 0: too few for 200 ranks"):
        iter(ParquetReader(folder, rank=0, size=200))
    with pytest.raises(ValueError, match="no rows in"):
        ParquetReader(in_memory([0], 1)).example()
    with pytest.raises(ValueError, match="both rank and size"):
        ParquetReader(folder, rank=1)
    with pytest.raises(ValueError, match=r"rank must be in 0\.\.1, not 2"):
        ParquetReader(folder, rank=2, size=2)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        ParquetReader(folder, batch_size=0)
