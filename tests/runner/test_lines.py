# SPDX-License-Identifier: Apache-2.0
"""What ranks print, cut into lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horovod.runner import lines
from horovod.runner.lines import LineCutter


def cut(chunks):
    cutter = LineCutter()
    return [line for chunk in [*chunks, b""] for line in cutter.feed(chunk)]


def chunks_of(data, places):
    borders = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in zip(borders, borders[1:]) if data[a:b]]


@given(st.lists(st.binary().filter(lambda b: b"\n" not in b and b"\r" not in b)), st.lists(st.integers(0)))
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_ordinary_lines_stay_what_they_are(end, texts, places):
    data = b"".join(text + end for text in texts)
    assert cut(chunks_of(data, places)) == [text + end for text in texts]


@given(st.lists(st.integers(0), max_size=8))
@pytest.mark.parametrize(
    "data, left",
    [
        (b"\r 10%|#  |\r 50%|## |\r100%|###|\nnext\n", [b"100%|###|\n", b"next\n"]),
        (b" 10%\r 50%\r100%\r\n", [b"100%\n"]),
        (b"10%\r100%\r          \r\ndone\n", [b"100%\n", b"done\n"]),
        (b"\r\r\r\n", [b"\n"]),
        (b"text\r\n\r\n", [b"text\r\n", b"\r\n"]),
        (b"\r42%", [b"42%"]),
    ],
)
def test_a_bar_counts_once_wherever_the_chunks_are_cut(data, left, places):
    assert cut(chunks_of(data, places)) == left


def test_the_newest_state_is_known_while_the_bar_moves():
    cutter = LineCutter()
    states = []
    for piece in (b"plain", b" text\n", b"\r 1%", b"\r 2%", b"\r 3%\r", b"   \r", b"\n", b"next"):
        cutter.feed(piece)
        states.append(cutter.state)
    assert states == [None, None, b" 1%", b" 2%", b" 3%", b" 3%", None, None]


def test_an_endless_line_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", 1000)
    for piece in (b"x" * 100, b"\r" + b"x" * 99, b"x" * 99 + b"\r"):
        cutter = LineCutter()
        for _ in range(1000):
            cutter.feed(piece)
            assert len(cutter._rest) < 1100
