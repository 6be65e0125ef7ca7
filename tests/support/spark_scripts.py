# SPDX-License-Identifier: Apache-2.0
"""Scripts with a Spark session of their own, as tests run them: they say what they found in lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from world import ROOT, worker_env


def lines(script, folder, **env):
    """What a script of tests/spark says, by job, and the ended process."""
    done = subprocess.run(
        [sys.executable, os.path.join(ROOT, "tests", "spark", script), str(folder)],
        env=worker_env(env), capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"job"')]
    return {one["job"]: one for one in found}, done
