# SPDX-License-Identifier: Apache-2.0
"""What a report computes about an imagined job."""

from __future__ import annotations

from typing import Optional

from timelines import Imagined

from horovod.runner.measured import Measured
from horovod.runner.report.analysis import Analysis, analyse
from horovod.runner.report.reading import merge
from horovod.runner.report.traces import read_trace


def analysis_of(job: Imagined, measured: Optional[Measured] = None) -> Analysis:
    """The analysis of a job that never ran."""
    traces = [read_trace(events) for events in job.events()]
    return analyse(merge([trace for trace in traces if trace is not None]), measured)
