# SPDX-License-Identifier: Apache-2.0
"""Whose the processor's time was."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks import core_distance, noise
from benchmarks.noise import Noise, Watch

SPIN = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


def test_children_are_ours_while_they_run_and_after() -> None:
    before = noise._own_ticks()
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    assert noise._own_ticks() - before >= 25  # of 100 a second


def test_a_stranger_is_not() -> None:
    # Its parent ends at once, so that it is nobody's child any more.
    start = f"subprocess.Popen([sys.executable, '-c', {SPIN!r}], start_new_session=True)"
    orphan = f"import subprocess, sys; {start}"
    before = noise._own_ticks()
    with Watch() as watch:
        subprocess.run([sys.executable, "-c", orphan], check=True)
        deadline = time.monotonic() + 20
        while noise._look()[1] - noise._own_ticks() - (watch._before[1] - before) < 25:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert watch.noise.others > 0
    assert "others" in str(watch.noise) and watch.noise.load >= 0


def test_the_distance_of_the_cores_is_said_where_it_could_be_measured() -> None:
    assert core_distance._compiled()
    found = core_distance.nanoseconds()  # None: both cores were never ours at the same time
    assert found is None or 5 < found <= 5000
    assert "from core to core and back 63 ns" in str(Noise(1.0, 0.0, 0.0, 62.6))
    assert "core to core" not in str(Noise(1.0, 0.0, 0.0))
