# SPDX-License-Identifier: Apache-2.0
"""The table of the README comes from a measurement, number by number."""

from __future__ import annotations

import os
import sys

from world import ROOT

sys.path.insert(0, os.path.join(ROOT, "scripts"))
import benchmark_table  # noqa: E402


def test_table_shows_medians_and_ratios():
    row = {"horovod": {"median_us": 2.0}, "gloo": {"median_us": 50.0}, "memcpy": {"median_us": 1.0}}
    large = {"horovod": {"median_us": 2500.0}}
    lines = benchmark_table.table({"2": {"4": row, "1048576": large}})
    assert lines[0] == "| ranks | bytes | this package | Gloo | one memcpy |"
    assert lines[2] == "| 2 | 4 B | 2.0 µs | 50.0 µs (25.0 x) | 1.0 µs |"
    assert lines[3] == "| 2 | 1 MiB | 2.50 ms | – | – |"


def test_documents_have_their_marks():
    for name in ("README.md", "docs/tuning.md"):
        with open(os.path.join(ROOT, name)) as file:
            text = file.read()
        assert text.count(benchmark_table.BEGIN) == text.count(benchmark_table.END) == 1
