# SPDX-License-Identifier: Apache-2.0
"""The coordinator's cost of one step of 161 cached tensors, up to 1,024 simulated ranks.

The ranks are simulated in one thread (csrc/tests/control/simulation.h), the messages are real: encoded,
parsed and counted. Messages through the coordinator stop growing once its tree has
more than one level, and so does its time.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any, Dict, List

from benchmarks.bench import Bench, Rows
from benchmarks.environments import ROOT
from benchmarks.noise import Watch
from benchmarks.rows import OURS, Row, Turn, summary

NUMBERS = ("ranks", "hosts", "tensors", "messages_in", "messages_out", "bytes_in", "bytes_out")


def run(bench: Bench) -> Rows:
    """A row for each size of the job."""
    try:
        with Watch() as watch:
            results = _measure(["20", "3"] if bench.quick else ["161", "7"])
    except (OSError, subprocess.SubprocessError) as error:
        yield Row("coordinator", not_run=str(error))
        return
    for result in results:
        shape = f"{result['ranks']} ranks on {result['hosts']} hosts"
        row = Row(f"coordinator, a step of {result['tensors']} tensors, {shape}", noise=watch.noise)
        seconds = [float(result["step_us"]) / 1e6]
        row.times[OURS] = summary([Turn(seconds, seconds)])
        row.facts = {key: result[key] for key in NUMBERS}
        row.facts["first_step_us"] = result["first_step_us"]
        yield row


def _measure(arguments: List[str]) -> List[Dict[str, Any]]:
    build = ROOT / "build"
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-DHOROVOD_TESTS=ON"]
    make = ["cmake", "--build", str(build), "--target", "coordinator_bench"]
    for step in (configure, make):
        subprocess.run(step, check=True, stdout=subprocess.DEVNULL)
    tool = build / "csrc" / "tests" / "coordinator_bench"
    output = subprocess.run([str(tool), *arguments], check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]
