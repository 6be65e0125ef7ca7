# SPDX-License-Identifier: Apache-2.0
"""Which files belong together, and what is said about those that do not."""

from __future__ import annotations

import os
import shutil

import pytest
from timelines import Imagined
from traces_of import trace_of

from horovod.runner.report.reading import merge, read_job, with_siblings


def test_one_name_stands_for_all(tmp_path):
    paths = Imagined(size=12, steps=1).write(tmp_path)
    (tmp_path / "timeline.rankx.json").write_text("[")
    assert with_siblings(paths[:1]) == paths
    assert with_siblings([*paths, paths[3]]) == paths
    assert with_siblings(paths[3:5]) == paths[3:5]
    assert [trace.rank for trace in read_job(paths[:1]).traces] == list(range(12))


def test_a_whole_job_needs_no_notes(tmp_path):
    job = read_job(Imagined(size=3, hosts=("a", "b", "c")).write(tmp_path))
    assert job.size == 3 and job.notes == [] and job.label(1) == "rank 1 on b"


def test_a_file_that_was_cut_off(tmp_path):
    paths = Imagined(size=2).write(tmp_path)
    os.truncate(paths[1], os.path.getsize(paths[1]) // 2)
    job = read_job(paths)
    assert 0 < len(job.traces[1].operations) < len(job.traces[0].operations)
    assert len(job.notes) == 1 and "incomplete" in job.notes[0]


def test_what_is_missing_or_too_much_is_said(tmp_path):
    paths = Imagined(size=4).write(tmp_path)
    os.remove(paths[2])
    (tmp_path / "other.json").write_text("hello")
    shutil.copy(paths[1], tmp_path / "copy.json")
    Imagined(size=9, steps=1).write(tmp_path, "larger")
    words = [
        paths[0],
        str(tmp_path / "other.json"),
        str(tmp_path / "copy.json"),
        str(tmp_path / "larger.rank7.json"),
    ]
    notes = " ".join(read_job(words).notes)
    for text in (
        "other.json has no events",
        "second file of rank 1",
        "rank 7 is of another job",
        "missing: 2",
    ):
        assert text in notes


def test_files_of_other_times_and_clocks():
    job = Imagined(size=2, hosts=("a", "b"))
    first, second = map(trace_of, job.events())
    second.aligned = False
    assert "clock" in merge([first, second]).notes[0]
    job.skew = {1: 7200e6}
    events = job.events()
    del events[1][0]["args"]["clock_offset_us"]
    merged = merge([first, trace_of(events[1])])
    assert len(merged.traces) == 1 and "another time" in merged.notes[0]


def test_events_that_were_dropped():
    events = Imagined(size=1).events()[0]
    events += [{"ph": "i", "name": "DROPPED", "ts": 1, "args": {"events": count}} for count in (5, 7)]
    assert "12 events of rank 0 are not in its file" in merge([trace_of(events)]).notes[0]


def test_nothing_to_read(tmp_path):
    (tmp_path / "empty.json").write_text("")
    with pytest.raises(ValueError, match="no timeline in .*empty.json; make one with"):
        read_job([str(tmp_path / "empty.json")])
    with pytest.raises(FileNotFoundError):
        read_job([str(tmp_path / "missing.json")])


def test_progress_is_shown_and_wiped(tmp_path, capsys):
    read_job(Imagined(size=1).write(tmp_path), progress=True)
    shown = capsys.readouterr().err
    assert "timeline.json: 100 %" in shown and shown.endswith("\r\x1b[K")
