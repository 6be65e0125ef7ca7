# SPDX-License-Identifier: Apache-2.0
"""Timelines of several ranks in one file, on one clock.

    python -m horovod.common.timelines all.json timeline.json timeline.rank*.json

Every rank's file says when it began and by how much its host's clock differs from rank 0's; the result counts
from the earliest beginning.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any, Dict, List, Optional, Sequence

Event = Dict[str, Any]


def read(path: str) -> List[Event]:
    """The events of one file. Raises ValueError, with the path, for something else."""
    with open(path, encoding="utf-8") as file:
        try:
            events: List[Event] = json.load(file)
        except ValueError as error:
            raise ValueError(f"{path} is not a timeline: {error}") from None
    return events


def identity(events: Sequence[Event]) -> Event:
    """Who wrote a timeline: rank, size, host, pid, when it began, and its clock's offset."""
    for event in events:
        if event.get("name") == "horovod" and event.get("ph") == "M":
            found: Event = event["args"]
            return found
    raise ValueError("this timeline does not say whose it is: it was written by another version")


def merge(paths: Sequence[str]) -> List[Event]:
    """All events, in the order of rank 0's clock, in microseconds since the first of the files began.

    What belongs to a rank as a whole (marks, steps) gets a "process" of its own for each rank.
    """
    timelines = [read(path) for path in paths]
    begins = []
    for events in timelines:
        who = identity(events)
        begins.append(who["start_time_since_epoch_in_micros"] + who["clock_offset_us"])
    zero = min(begins)
    merged: List[Event] = []
    for events, begin in zip(timelines, begins):
        rank = identity(events)["rank"]
        own = (rank + 1) * 1_000_000 - 1  # beyond the ids of its tensors
        title = f"rank {rank}"
        merged.append({"name": "process_name", "ph": "M", "pid": own, "args": {"name": title}})
        for event in events:
            if event.get("pid", 0) == 0:
                if event["ph"] == "M" and event["name"] != "horovod":
                    continue
                event = dict(event, pid=own)
            if "ts" in event:
                event = dict(event, ts=event["ts"] + begin - zero)
            merged.append(event)
    return sorted(merged, key=lambda event: event.get("ts", -1))


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Entry of the module."""
    parser = argparse.ArgumentParser(description="Puts timelines of several ranks into one file.")
    parser.add_argument("out", help="the file to write")
    parser.add_argument("timeline", nargs="+", help="the ranks' files")
    parsed = parser.parse_args(arguments)
    events = merge(parsed.timeline)
    beside = parsed.out + ".new"
    with open(beside, "w", encoding="utf-8") as file:
        json.dump(events, file)
    os.replace(beside, parsed.out)


if __name__ == "__main__":
    main()
