# SPDX-License-Identifier: Apache-2.0
"""What a report computes about an imagined job."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Optional

from timelines import Imagined

from horovod.runner.measured import Measured
from horovod.runner.report.analysis import Analysis, analyse
from horovod.runner.report.reading import merge
from horovod.runner.report.traces import Trace, read_traces


def trace_of(events: Iterable[Dict[str, Any]]) -> Optional[Trace]:
    """The one trace in a file's events, if there is one."""
    traces = read_traces(events)
    assert len(traces) < 2
    return traces[0] if traces else None


def analysis_of(job: Imagined, measured: Optional[Measured] = None) -> Analysis:
    """The analysis of a job that never ran."""
    traces = [trace_of(events) for events in job.events()]
    return analyse(merge([trace for trace in traces if trace is not None]), measured)
