# SPDX-License-Identifier: Apache-2.0
"""Any dataset, any number of ranks, any interruptions: equal parts, no row twice, nothing lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod.data.dealing import Groups, Mixing, Piece, Stage, after, deal, remaining, shuffled, stream

row_counts = st.lists(st.integers(0, 40), min_size=1, max_size=12)
mixings = st.builds(
    Mixing,
    shuffle=st.booleans(),
    seed=st.integers(0, 3),
    window_rows=st.one_of(st.none(), st.integers(1, 60)),
    window_bytes=st.one_of(st.none(), st.integers(1, 600)),
    same_parts=st.booleans(),
)


def groups_of(rows):
    return Groups(tuple(rows), tuple(8 * count for count in rows))


def rows_of(piece):
    """The rows of a piece as (group, row), in order; an order of our own for the mixed ones."""
    laid = [(group, row) for group, first, end in piece.spans for row in range(first, end)]
    if piece.key:
        order = np.random.RandomState([number & 0xFFFFFFFF for number in piece.key]).permutation(len(laid))
        laid = [laid[i] for i in order]
    return laid[piece.start : piece.stop]


def all_rows(pieces):
    return [row for piece in pieces for row in rows_of(piece)]


@settings(max_examples=300, deadline=None)
@given(
    rows=row_counts,
    mixing=mixings,
    epoch=st.integers(0, 3),
    sizes=st.lists(st.integers(1, 7), max_size=4),
    size=st.integers(1, 7),
    data=st.data(),
)
def test_each_row_at_most_once_whatever_happens(rows, mixing, epoch, sizes, size, data):
    """Stages of any sizes follow each other; each takes part of what is left; the last takes everything."""
    groups = groups_of(rows)
    everything = {(group, row) for group, count in enumerate(rows) for row in range(count)}
    stages, seen = [], []
    for ranks in [*sizes, size]:
        streams = [stream(groups, mixing, epoch, stages, rank, ranks) for rank in range(ranks)]
        share = (len(everything) - len(seen)) // ranks
        assert [sum(map(len, one)) for one in streams] == [share] * ranks
        taken = share if len(stages) == len(sizes) else data.draw(st.integers(0, share))
        for one in streams:
            seen += all_rows(one)[:taken]
        assert len(set(seen)) == len(seen) and set(seen) <= everything
        stages = [*stages, Stage(ranks, taken, mixing)]
        left = all_rows(remaining(groups, mixing, epoch, stages))
        assert sorted(left) == sorted(everything - set(seen))
    assert len(everything) - len(seen) < size


@given(rows=row_counts, mixing=mixings, epoch=st.integers(0, 5), size=st.integers(1, 5))
def test_no_window_is_larger_than_it_takes(rows, mixing, epoch, size):
    """A window ends with the row group that fills it."""
    groups = groups_of(rows)
    for rank in range(size):
        pieces = stream(groups, mixing, epoch, [], rank, size)
        for piece in pieces:
            last_group, first, end = piece.spans[-1]
            before = len(piece) - (end - first)
            assert mixing.window_rows is None or before < mixing.window_rows
        for piece in pieces[:-1]:
            rows_reached = mixing.window_rows is not None and len(piece) >= mixing.window_rows
            bytes_reached = mixing.window_bytes is not None and 8 * len(piece) >= mixing.window_bytes
            assert rows_reached or bytes_reached


def test_the_order_is_that_of_seed_and_epoch():
    groups = groups_of([10] * 20)

    def order(seed, epoch, **more):
        mixing = Mixing(seed=seed, window_rows=30, **more)
        return all_rows(stream(groups, mixing, epoch, [], 0, 2))

    assert order(0, 0) == order(0, 0)
    assert len({tuple(order(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9
    plain = order(0, 0, shuffle=False)
    assert plain == order(5, 7, shuffle=False) == sorted(plain)
    kept = [order(0, epoch, same_parts=True) for epoch in (0, 1)]
    assert kept[0] != kept[1] and set(kept[0]) == set(kept[1])


def test_the_order_never_changes_between_versions():
    """Places saved by one version are read by another: these numbers must stay."""
    assert shuffled(range(8), 1, 2, 0) == [1, 0, 3, 4, 7, 6, 2, 5]
    mixing = Mixing(seed=3, window_rows=4)
    rows = all_rows(stream(groups_of([3, 2, 4]), mixing, 1, [Stage(2, 1, mixing)], 0, 2))
    assert rows == [(2, 0), (2, 2), (2, 1)]


def test_deal_cuts_to_the_row():
    pieces = [Piece(((0, 0, 5),), 0, 5), Piece(((1, 0, 6),), 0, 6)]
    parts, rest = deal(pieces, 2)
    assert [[piece.spans for piece in part] for part in parts] == [[((0, 0, 5),)], [((1, 0, 5),)]]
    assert [piece.spans for piece in rest] == [((1, 5, 6),)]


@pytest.mark.parametrize("size", [1, 3])
def test_nothing_to_deal(size):
    assert deal([], size) == ([[] for _ in range(size)], [])
    assert after([], 3) == []
