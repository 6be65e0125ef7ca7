# SPDX-License-Identifier: Apache-2.0
"""The job cut into steps."""

from __future__ import annotations

import pytest
from timelines import Imagined
from traces_of import trace_of

from horovod.runner.report.analysis import analyse
from horovod.runner.report.reading import merge


def steps_of(job):
    return analyse(merge([trace_of(events) for events in job.events()]))


@pytest.mark.parametrize(
    "marked, inferred, found",
    [
        (True, False, "marked"),
        (True, True, "inferred: a step ends before its first tensor comes back"),
        (False, False, "guessed: a step ends with grad.2"),
    ],
)
def test_marked_inferred_and_guessed(marked, inferred, found):
    """Step 5 takes 40 ms more, for which rank 2 is to blame."""
    job = Imagined(steps=8, late_in={5: {2: 40_000.0}}, marked=marked, inferred=inferred)
    analysis = steps_of(job)
    assert analysis.steps_found == found and len(analysis.steps) == 7
    worst = max(analysis.steps, key=lambda step: step.wait)
    number = 6 if marked else 5
    assert worst.number == number and list(worst.culprits) == [2]
    assert worst.length == pytest.approx(53_000) and worst.wait == pytest.approx(30_000)  # three of four wait
    others = [step for step in analysis.steps if step is not worst]
    assert all(step.wait == 0 and step.communication == pytest.approx(3_000) for step in others)
    assert all(step.length == pytest.approx(13_000) for step in others)


def test_marks_win_over_what_was_inferred_before_them():
    files = Imagined(steps=4).events()
    for events in files:
        early = [{**event, "args": {"n": 1, "inferred": True}} for event in events if event["name"] == "STEP"]
        events += early
    analysis = analyse(merge([trace_of(events) for events in files]))
    assert analysis.steps_found == "marked" and [step.number for step in analysis.steps] == [2, 3, 4]


def test_too_few_to_guess():
    analysis = steps_of(Imagined(steps=2, marked=False))
    assert (analysis.steps, analysis.steps_found) == ([], "")
