# SPDX-License-Identifier: Apache-2.0
"""horovodrun --report: what timelines say about a job, as a page for people.

events.py -> traces.py -> reading.py     files to operations of ranks, all on one clock
spending, steps, batches, tensors        what they cost; analysis.py has all of it      pure
findings.py                              what that means and what to do                 pure
figures.py -> svg.py, page.py, style.py  the page; pictures.py: PNG files
"""

from __future__ import annotations

import os
import sys
from typing import Optional, Sequence

DEFAULT_OUTPUT = "horovod-report"


def write_report(paths: Sequence[str], output: Optional[str] = None, check: Optional[str] = None) -> str:
    """Reads timelines, writes report.html and PNG files into a folder, and returns what to print.

    Args:
        paths: timeline files of a job's ranks; "timeline.json" stands for those beside it, too.
        output: the folder, made if it is not there; "horovod-report" by default.
        check: a file of `horovodrun --check --check-output`, to compare bandwidths with.

    Raises:
        ValueError: if the files are not timelines, or without collectives.
        OSError: if a file cannot be read or written.
    """
    from horovod.runner import measured
    from horovod.runner.report.analysis import analyse
    from horovod.runner.report.findings import findings
    from horovod.runner.report.page import page
    from horovod.runner.report.pictures import NoMatplotlib, draw
    from horovod.runner.report.reading import read_job

    limits = measured.read(check) if check else None
    analysis = analyse(read_job(paths, progress=sys.stderr.isatty()), limits)
    found = findings(analysis)
    folder = output or DEFAULT_OUTPUT
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "report.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(page(analysis, found))
    try:
        pictures = f" and {len(draw(analysis, folder))} PNG files beside it"
    except NoMatplotlib as error:
        pictures = f" ({error})"
    lines = [f"- {one.what}\n  {one.advice}" for one in found]
    return "\n".join([*lines, *analysis.job.notes, f"{path}{pictures}"])
