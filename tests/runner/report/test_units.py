# SPDX-License-Identifier: Apache-2.0
"""Numbers as people read them."""

from __future__ import annotations

import pytest

from horovod.runner.report.units import bytes_text, percent, rate_text, time_text


@pytest.mark.parametrize(
    "function, value, text",
    [
        (percent, 0.412, "41 %"), (percent, 0.004, "0.4 %"), (percent, 0, "0 %"), (percent, 1, "100 %"),
        (bytes_text, 0, "0 B"), (bytes_text, 1023, "1023 B"), (bytes_text, 1536, "1.5 KiB"),
        (bytes_text, 1 << 20, "1 MiB"), (bytes_text, 300 << 20, "300 MiB"), (bytes_text, 5 << 40, "5120 GiB"),
        (rate_text, 2.5e9, "2.50 GB/s"), (rate_text, 3e6, "3.0 MB/s"),
        (time_text, 12, "12 us"), (time_text, 1500, "1.5 ms"),
        (time_text, 2e6, "2.00 s"), (time_text, 9e7, "1.5 min"),
    ],
)  # fmt: skip
def test_text(function, value, text):
    assert function(value) == text
