# SPDX-License-Identifier: Apache-2.0
"""Which files belong to a job, and what all of them say together."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
import sys
from typing import Callable, List, Optional, Sequence

from horovod.runner.report.events import EventReader
from horovod.runner.report.lateness import blame
from horovod.runner.report.traces import Trace, read_traces

_LATE_US = 3600e6  # a file that was started this long after rank 0's is of another job


@dataclasses.dataclass
class Job:
    """The traces of a job by rank, and what to know about how they were read."""

    traces: List[Trace]
    notes: List[str]

    @property
    def size(self) -> int:
        """Ranks of the job, as far as its files tell."""
        told = max(trace.size for trace in self.traces)
        seen = [trace.rank for trace in self.traces] + [other[0] for t in self.traces for other in t.others]
        return max(told, max(seen) + 1)

    def label(self, rank: int) -> str:
        """E.g. "rank 3 on node7"."""
        host = next((trace.host for trace in self.traces if trace.rank == rank), "")
        return f"rank {rank} on {host}" if host else f"rank {rank}"


def read_job(paths: Sequence[str], progress: bool = False) -> Job:
    """Reads the timeline files of a job.

    Args:
        paths: the files. "timeline.json" stands for "timeline.rank1.json", ... beside it, too.
        progress: show on standard error how far it is.

    Raises:
        ValueError: if no file can be read, or none is a timeline.
        OSError: if a file cannot be opened.
    """
    notes: List[str] = []
    found: List[Trace] = []
    for path in with_siblings(paths):
        traces = _read_file(path, notes, progress)
        found += traces
        if not traces:
            notes.append(f"{path} has no events of a Horovod timeline and was left out.")
    if not found:
        raise ValueError(
            f"no timeline in {', '.join(paths)}; make one with "
            "horovodrun -np 2 --timeline-filename timeline.json python train.py"
        )
    return merge(found, notes)


def merge(found: Sequence[Trace], notes: Sequence[str] = ()) -> Job:
    """One job of the traces: a trace for each rank, in order, with what is wrong among them as notes."""
    job = Job([], list(notes))
    size = next((trace.size for trace in found if trace.rank == 0), 0)
    for trace in sorted(found, key=lambda trace: trace.rank):
        if size and trace.rank >= size:
            job.notes.append(f"The file of rank {trace.rank} is of another job: this one has {size} ranks.")
        elif job.traces and job.traces[-1].rank == trace.rank:
            job.notes.append(f"There is a second file of rank {trace.rank}; the first one is used.")
        elif job.traces and abs(_begin(trace) - _begin(job.traces[0])) > _LATE_US:
            job.notes.append(f"The file of rank {trace.rank} is from another time and was left out.")
        else:
            job.traces.append(trace)
    blame(job.traces)
    _note_what_is_missing(job)
    return job


def _note_what_is_missing(job: Job) -> None:
    missing = sorted(set(range(job.size)) - {trace.rank for trace in job.traces})
    if job.traces[0].alone:
        job.notes.append(
            "This is a file of rank 0 alone: how other ranks spent their time is not in it, and who was late "
            "only where the coordinator saw ranks one by one."
        )
    elif missing:
        numbers = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        job.notes.append(f"The files of {len(missing)} of {job.size} ranks are missing: {numbers}.")
    for trace in job.traces:
        if trace.dropped:
            job.notes.append(
                f"{trace.dropped} events of rank {trace.rank} are not in its file: "
                "they came faster than they could be written."
            )
    if len({trace.host for trace in job.traces}) > 1 and not all(trace.aligned for trace in job.traces):
        job.notes.append("Some files do not say how their host's clock differs from rank 0's.")


def _begin(trace: Trace) -> float:
    return trace.operations[0].submitted if trace.operations else 0.0


def with_siblings(paths: Sequence[str]) -> List[str]:
    """The paths, and for "t.json" also "t.rank1.json", "t.rank2.json", ...; each once, in order of rank."""
    found: List[str] = []
    for path in paths:
        stem, end = os.path.splitext(path)
        others = []
        if not re.search(r"\.rank\d+$", stem):
            others = [p for p in glob.glob(f"{glob.escape(stem)}.rank*{end}") if _number(p) is not None]
        found += [path, *sorted(others, key=lambda p: _number(p) or 0)]
    return list(dict.fromkeys(found))


def _number(path: str) -> Optional[int]:
    match = re.search(r"\.rank(\d+)$", os.path.splitext(path)[0])
    return int(match[1]) if match else None


def _read_file(path: str, notes: List[str], progress: bool) -> List[Trace]:
    with open(path, encoding="utf-8", errors="replace") as file:
        size = os.fstat(file.fileno()).st_size
        reader = EventReader(file, _bar(path, size) if progress else None)
        traces = read_traces(reader)
    if progress:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    if reader.damaged and traces:
        notes.append(
            f"{path} is incomplete: {reader.damaged} characters are no whole event. The rest of it is used."
        )
    return traces


def _bar(path: str, size: int) -> Callable[[int], None]:
    def show(done: int) -> None:
        share = min(100, 100 * done // max(1, size))
        print(f"\r\x1b[Kreading {path}: {share} %", end="", file=sys.stderr, flush=True)

    return show
