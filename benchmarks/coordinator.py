# SPDX-License-Identifier: Apache-2.0
"""The coordinator's cost of one step of 161 cached tensors, up to 1,024 simulated ranks.

The ranks are simulated in one thread (csrc/tests/control/simulation.h), the messages are real: encoded,
parsed and counted. Messages through the coordinator stop growing once its tree has
more than one level, and so does its time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Dict

from benchmarks.environments import ROOT
from benchmarks.harness import time_text


def run(quick: bool = False) -> Dict[str, Any]:
    """{"rows": [...]}, one for each size of the job."""
    build = ROOT / "build"
    configure = ["cmake", "-S", str(ROOT), "-B", str(build), "-DHOROVOD_TESTS=ON"]
    try:
        subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
        make = ["cmake", "--build", str(build), "--target", "coordinator_bench"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"benchmarks: without the coordinator's: {error}", file=sys.stderr)
        return {}
    tool = build / "csrc" / "tests" / "coordinator_bench"
    arguments = ["20", "3"] if quick else ["161", "7"]
    output = subprocess.run([str(tool), *arguments], check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in output.splitlines()]
    print(f"\ncoordinator, one step of {rows[0]['tensors']} tensors")
    heads = ("first step", "a step", "messages", "bytes")
    print(f"  {'ranks':>6} {'hosts':>6} " + " ".join(f"{head:>12}" for head in heads))
    for row in rows:
        messages, size = row["messages_in"] + row["messages_out"], row["bytes_in"] + row["bytes_out"]
        first, step = time_text(row["first_step_us"]), time_text(row["step_us"])
        print(f"  {row['ranks']:>6} {row['hosts']:>6} {first:>12} {step:>12} {messages:>12} {size:>12}")
    return {"rows": rows}
