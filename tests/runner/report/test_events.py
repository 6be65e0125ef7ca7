# SPDX-License-Identifier: Apache-2.0
"""Reading timeline files: whole, cut off anywhere, damaged, larger than what is read at once."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timelines import Imagined

from horovod.runner.report import events as module
from horovod.runner.report.events import EventReader

EVENTS = Imagined(size=2, steps=3).events()[1]
TEXT = "[\n" + ",\n".join(map(json.dumps, EVENTS)) + "\n]"
ENDS = [TEXT.index(line) + len(line) for line in map(json.dumps, EVENTS)]  # where each event ends


def read(text, **options):
    reader = EventReader(io.StringIO(text), **options)
    return list(reader), reader.damaged


@pytest.mark.parametrize("chunk", [7, 100, 1 << 20])
def test_a_whole_file(monkeypatch, chunk):
    monkeypatch.setattr(module, "_CHUNK", max(chunk, 300))  # an event is shorter than that
    progress = []
    found, damaged = read(TEXT, on_progress=progress.append)
    assert (found, damaged) == (EVENTS, 0)
    assert progress == sorted(progress) and progress[-1] == len(TEXT)


@given(st.integers(0, len(TEXT)))
def test_cut_off_anywhere(length):
    """What is complete is read; what is left of the last event is counted."""
    found, damaged = read(TEXT[:length])
    assert found == [event for event, end in zip(EVENTS, ENDS) if end <= length]
    rest = TEXT[max([end for end in ENDS if end <= length], default=0) : length]
    assert damaged == len(rest.lstrip("[,\n]"))


@given(st.integers(0, len(EVENTS) - 1), st.text(max_size=30))
def test_a_damaged_line_costs_that_line(at, garbage):
    lines = list(map(json.dumps, EVENTS))
    lines[at] = '{"ph": "X", ' + garbage.replace("\n", "").replace("\r", "").replace("}", "") + "\x00"
    found, damaged = read("[\n" + ",\n".join(lines) + "\n]")
    assert found == EVENTS[:at] + EVENTS[at + 1 :] and damaged > 0


@pytest.mark.parametrize("text", ["", "[", "[\n]", "not json at all", "\x00\x01", '"text"', "[1, 2, 3]"])
def test_what_is_no_timeline(text):
    assert read(text)[0] == []


def test_one_line_and_no_spaces():
    """Other writers put everything on a line."""
    assert read(json.dumps(EVENTS, separators=(",", ":")))[0] == EVENTS
