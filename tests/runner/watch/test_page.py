# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, over real jobs. HOROVOD_SCREENSHOTS=docs/assets renews the docs' pictures."""

from __future__ import annotations

import os

import pytest
from browser import CHROMIUM, MISSING, Browser
from waiting import until
from watching import WatchedJob

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
PICTURES = os.environ.get("HOROVOD_SCREENSHOTS", "")
PHONE = dict(width=390, height=844, scale=2, mobile=True)


def picture(browser, folder, name):
    """Takes a picture, which must show something."""
    path = os.path.join(PICTURES or str(folder), name)
    browser.screenshot(path)
    assert os.path.getsize(path) > 10_000  # an empty page is smaller


def text(browser, selector):
    return browser.evaluate(f"[...document.querySelectorAll('{selector}')].map(e => e.innerText).join('\\n')")


def tile(rank):
    return f'button.rank[data-worker="{rank}"]'


def colour(browser, rank):
    return browser.evaluate(f"getComputedStyle(document.querySelector('{tile(rank)}')).borderTopColor")


def test_a_rank_that_freezes_and_one_that_is_stuck_turn_red_with_their_stacks(tmp_path):
    with (
        WatchedJob(tmp_path, 4, "-H", "localhost:2,127.0.0.1:2", "--dashboard", stuck_rank=2) as job,
        Browser(tmp_path / "profile") as browser,
    ):
        job.wait_for_ranks()
        browser.open(job.address())
        until(lambda: "B/s" in text(browser, "#totals"), "the page shows how fast the job is")
        until(lambda: "starting" not in text(browser, "#hosts"), "all ranks have reported")
        assert browser.evaluate("location.search") == ""  # the token is not left in the address
        assert browser.evaluate("document.querySelectorAll('.rank').length") == 4
        assert text(browser, "#hosts h2") == "localhost\n127.0.0.1"
        until(lambda: text(browser, "#state") == "running", "all ranks are well")
        # What ranks print is text, whatever it contains.
        until(lambda: "<b>&amp;" in text(browser, "#lines"), "the output is shown")
        well = colour(browser, 2)
        drawn = "[...document.querySelectorAll('polyline')].map(line => line.points.length)"
        points = 20 if PICTURES else 2
        until(lambda: [n >= points for n in browser.evaluate(drawn)] == [True] * 4, "step times are drawn")
        assert "samples/s" in text(browser, "#totals")
        picture(browser, tmp_path, "dashboard_running.png")

        open(job.stuck, "w").close()
        until(lambda: "while_it_is_there(path)" in text(browser, "#trouble pre"), "its live stack is shown")
        assert "rank 2 on 127.0.0.1" in text(browser, "#trouble b")
        assert "wait_in_the_data_loader" in text(browser, "#trouble pre")
        assert "stalled" in text(browser, tile(2)) and colour(browser, 2) != well
        assert "not well" in text(browser, "#state")
        picture(browser, tmp_path, "dashboard_stalled.png")
        os.unlink(job.stuck)
        until(lambda: browser.evaluate("document.querySelector('#trouble').hidden"), "it goes on")

        job.freeze(1)
        until(lambda: "silent" in text(browser, tile(1)), "the frozen rank turns red")
        until(lambda: "watched.py" in text(browser, "#trouble pre"), "what was last known of it is shown")
        assert "when it was last heard of" in text(browser, "#trouble")
        assert colour(browser, 1) != well
        browser.resize(**PHONE)
        fits = "document.documentElement.scrollWidth <= window.innerWidth"
        assert browser.evaluate(fits)  # nothing sticks out on a phone
        picture(browser, tmp_path, "dashboard_phone.png")
        job.thaw(1)
        until(lambda: browser.evaluate("document.querySelector('#trouble').hidden"), "it goes on")

        browser.evaluate(f"document.querySelector('{tile(0)}').click()")
        until(lambda: "watched.py" in text(browser, "#trouble pre"), "a click shows a rank's stacks")
        assert job.finish() == 0, job.err
        until(lambda: text(browser, "#state") == "ended", "the page shows the end")
        place = job.address().split("/?")[0]
        assert all(url.startswith((place, "about:")) for url in browser.requests), browser.requests
