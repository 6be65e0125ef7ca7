#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of docs/report.md from a job that runs here, in which rank 2 of 4 is slow.

python scripts/draw_report.py     writes docs/assets/report_*.png; needs matplotlib and the engine
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
JOB = os.path.join(ROOT, "tests", "runner", "scripts", "slow_rank.py")
SHOWN = ("shares", "waits")


def horovodrun(folder: str, *words: str) -> None:
    """Runs horovodrun in a folder."""
    env = {**os.environ, "PYTHONPATH": ROOT}
    subprocess.run([sys.executable, "-m", "horovod.runner.launch", *words], cwd=folder, env=env, check=True)


def main() -> None:
    """Runs the job and its report, and keeps what the page shows."""
    with tempfile.TemporaryDirectory() as folder:
        horovodrun(folder, "-np", "4", "--timeline-filename", "timeline.json", sys.executable, JOB, "2", "40")
        horovodrun(folder, "--report", "timeline.json", "--report-output", "report")
        for name in SHOWN:
            target = os.path.join(ROOT, "docs", "assets", f"report_{name}.png")
            shutil.copy(os.path.join(folder, "report", f"{name}.png"), target)


if __name__ == "__main__":
    main()
