# SPDX-License-Identifier: Apache-2.0
"""Taking a row apart: the parts add up to what was measured, and what cannot be measured says why."""

from __future__ import annotations

import collections
import re
import time
from pathlib import Path

import pytest

from benchmarks.costs import __main__ as costs
from benchmarks.costs import instructions, perf, rank
from benchmarks.costs.instructions import Count, Counted
from benchmarks.costs.lines import LineSampler
from benchmarks.costs.loops import LOOPS, small_tensors
from benchmarks.costs.perf import Cost
from benchmarks.costs.report import Functions, counted_text, text
from benchmarks.environments import ROOT
from benchmarks.noise import Noise

ENGINE = ROOT / "horovod" / "_lib" / "libhorovod_core.so"


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_the_sampler_finds_the_line_that_takes_the_time() -> None:
    with LineSampler() as sampler:
        burn(0.3)
    places = collections.defaultdict(lambda: (0.0, 0.0))  # a function may have been seen at several lines
    for place, alone, below in sampler.shares():
        function = place.split()[1]
        places[function] = places[function][0] + alone, places[function][1] + below
    assert sampler.samples > 10
    assert places["burn"][0] > 0.2
    mine = "test_the_sampler_finds_the_line_that_takes_the_time"
    assert places[mine][0] < places["burn"][0] and places[mine][1] > 0.9


def test_reports_of_perf_are_read() -> None:
    lines = " 12.34%;python;/x/libhorovod_core.so;[.] hvd::Engine::progress;-      -\n\n# comment\n"
    both = "50.00%;1.50%;hvd-engine;[kernel.kallsyms];[k] do_sched_yield\n"
    assert perf.parse(lines + both) == [
        Cost(0.1234, "python", "libhorovod_core.so", "hvd::Engine::progress"),
        Cost(0.5, "hvd-engine", "[kernel.kallsyms]", "do_sched_yield"),
    ]


def test_reports_of_valgrind_are_read() -> None:
    counts = instructions.parse(
        "36,000  PROGRAM TOTALS\n"
        "30,000  engine.cc:hvd::Engine::wait(long, double) [/x/libhorovod_core.so]\n"
        "10,000  ???:f(int) [clone .isra.0] [/x/libc.so.6]\n"
        " 4,000  ???:f'2 [/x/libc.so.6]\n",
        100,
    )
    assert counts[0] == Count(300.0, "hvd::Engine::wait(long, double)", "libhorovod_core.so")
    assert counts[1].library == "libc.so.6" and counts[1].instructions == 100.0
    report = counted_text(LOOPS["allreduce-1"], Counted(360.0, counts, counts))
    assert "360 a call" in report and "hvd::Engine::wait" in report


def test_shares_become_microseconds() -> None:
    batch = {"wall": [20e-6], "processor": [10e-6]}
    found = {
        "calls": 100, "plain": batch, "native": {"wall": [4e-6], "processor": [2e-6]}, "foreign_call": batch,
        "lines": [("x.py:3 f", 0.25, 0.5)], "line_samples": 40, "perf": None, "problem": "",
    }  # fmt: skip
    own = [
        Cost(0.3, "python", "libpython.so", "eval"), Cost(0.2, "python", "libhorovod_core.so", "hvd_run"),
        Cost(0.5, "hvd-engine", "libhorovod_core.so", "poll"),
    ]  # fmt: skip
    functions = Functions(own, own, [Cost(0.2, "hvd_run", "libhorovod_core.so", "hvd_run")])
    report = text("allreduce-2", LOOPS["allreduce-2"], found, functions, Noise(1.0, 0.0, 0.5))
    assert "10.00 us of the processor,    20.00 us on the clock" in report
    assert "2.00 us of the processor" in report and "C header alone" in report
    assert re.search(r"2\.50 +5\.00  x\.py:3 f", report)
    assert re.search(r"6\.00  libpython\.so +eval", report)  # three fifths of the main thread's 10 us
    assert "50.0%  hvd-engine" in report and "others 50%" in report


def test_without_perf_the_rest_remains() -> None:
    batch = {"wall": [20e-6], "processor": [10e-6]}
    found = {
        "calls": 1, "plain": batch, "native": None, "lines": [], "line_samples": 1, "perf": "no perf here",
        "problem": "no compiler",
    }  # fmt: skip
    report = text("allreduce-1", LOOPS["allreduce-1"], found, None, Noise(1.0, 0.0, 0.0))
    assert "not measured: no perf here" in report and "not measured: no compiler" in report


@pytest.mark.parametrize("loop", ["many-2", "hook-2"])
def test_a_loop_is_taken_apart(loop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert costs.main([loop, "--seconds", "0.2", "--engine", str(ENGINE), "--out", str(tmp_path)]) == 0
    report = (tmp_path / f"{loop}.txt").read_text()
    assert report in capsys.readouterr().out
    assert LOOPS[loop].about in report and "lines of Python" in report
    if LOOPS[loop].native:
        assert "us on the clock" in report and "by the C header alone" in report
        assert "not measured: native" not in report
    if perf.why_not() is None:
        assert "functions of the engine" in report


def test_instructions_are_counted(tmp_path: Path) -> None:
    if instructions.why_not() is not None:
        pytest.skip(str(instructions.why_not()))
    counted = instructions.count("barrier-1", ENGINE, tmp_path)
    assert counted.total > 1000
    assert 0.5 * counted.total < sum(count.instructions for count in counted.own) <= 1.01 * counted.total
    assert any("libhorovod_core" in library for library in counted.by_library())


def test_the_c_loops_agree_with_the_header(tmp_path: Path) -> None:
    rank.compile_native(tmp_path, ENGINE)
    library = rank.library(tmp_path)
    assert all(hasattr(library, f"native_{loop.native}") for loop in LOOPS.values() if loop.native)
    assert len(small_tensors()) == 107


def test_unknown_loops_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        costs.main(["speed"])
    assert "nothing called speed" in capsys.readouterr().err
    assert costs.main(["--list"]) == 0
    assert "torch hook" in capsys.readouterr().out
