# SPDX-License-Identifier: Apache-2.0
"""What the GPU benchmark says of its rounds."""

from __future__ import annotations

import pytest

from benchmarks import gpu


def test_shares_come_from_rounds_and_not_from_medians():
    # The machine slowed down in the last two rounds, for both.
    row = gpu.summary({"horovod": [1.0, 1.1, 4.0, 4.4], "torch": [1.0, 1.0, 4.0, 4.0]})
    assert row["horovod"] == pytest.approx(2.55)
    assert row["over torch"] == pytest.approx([1.0, 1.05, 1.1])


@pytest.mark.parametrize(
    "measured, said",
    [
        ([0.97, 0.98, 0.99], "reached"),
        ([0.95, 0.99, 1.04], "~reached"),
        ([0.96, 1.01, 1.05], "~missed"),
        ([1.01, 1.02, 1.05], "MISSED"),
        ([0.9], "reached"),
        ([1.1], "MISSED"),
    ],
)
def test_verdicts_say_when_rounds_disagree(measured, said):
    assert gpu.verdict(measured, 1.0) == said


@pytest.mark.parametrize("life, expected", [(0, "htthht"), (1, "thhtth")])
def test_every_round_lets_all_take_turns(life, expected):
    order = []
    times = gpu.turns_of(
        life, 3, {"horovod": lambda: order.append("h") or 1.0, "torch": lambda: order.append("t") or 2.0}
    )
    assert times == {"horovod": [1.0] * 3, "torch": [2.0] * 3}
    assert "".join(order) == expected
