# SPDX-License-Identifier: Apache-2.0
"""The page: complete in itself, well-formed, and showing what was found."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from timelines import Imagined
from traces_of import analysis_of

from horovod.runner.measured import Measured
from horovod.runner.report.findings import findings
from horovod.runner.report.page import page

VOID = {"meta", "br", "hr", "img", "link"}
MEASURED = Measured(4, ["a"], [(4, 1e-5), (1 << 20, 1e-4), (16 << 20, 1e-2)])
JOBS = {
    "one rank": Imagined(size=1),
    "four": Imagined(late={3: 5_000.0}, hosts=("node1", "node7")),
    "many ranks": Imagined(size=50, steps=3, late={7: 5_000.0}),
    "many steps": Imagined(size=2, steps=400, tensors=1, late={1: 500.0}),
    "no steps": Imagined(steps=1, marked=False),
    "one size": Imagined(size=2, nbytes=1),
    "nothing moved": Imagined(size=2, moving=0.0, nbytes=0),
}


class Checker(HTMLParser):
    """Every tag is closed where it must be, and nothing is loaded from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "link", "img", "iframe")
        assert not any(name in ("src", "href") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + " "


def checked(job, measured=MEASURED):
    analysis = analysis_of(job, measured)
    html = page(analysis, findings(analysis))
    checker = Checker()
    checker.feed(html)
    assert checker.open == [] and "url(" not in html and "@import" not in html
    for drawing in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        for element in ElementTree.fromstring(drawing).iter():
            for name in ("x", "y", "width", "height", "cx", "cy"):
                assert float(element.get(name, 0)) == float(element.get(name, 0)), "not a number"
    return html, checker.text


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize("measured", [None, MEASURED], ids=["", "checked"])
def test_whole_and_alone(job, measured):
    html, _ = checked(job, measured)
    assert len(html) < 500_000, "many ranks and steps must not make it larger"


def test_what_it_shows():
    html, text = checked(JOBS["four"])
    for words in (
        "Rank 3 on node7 made the others wait", "4 ranks on 2 hosts", "Where the time went",
        "Who keeps whom waiting", "Who was waited for in each step",
        "Step by step", "The slowest tensors", "grad.2", "Fusion and overlap", "Bandwidth by size", "WIRE",
        "times what horovodrun --check measured",
    ):  # fmt: skip
        assert words in text
    assert html.count("<svg") == 4  # shares, steps, culprits, bandwidth


def test_names_of_users_are_text():
    job = Imagined(size=2, hosts=("<script>alert(1)</script>",))
    analysis = analysis_of(job)
    analysis.tensors[0].name = "<img src=x>&"
    analysis.job.notes.append("<b>note")
    html = page(analysis, findings(analysis))
    assert "<script" not in html and "<img" not in html and "<b>note" not in html
    assert "&lt;img src=x&gt;&amp;" in html
