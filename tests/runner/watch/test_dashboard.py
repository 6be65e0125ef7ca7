# SPDX-License-Identifier: Apache-2.0
"""Who may see the page: over real connections, with a source that shows one view."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket

import pytest
from waiting import until
from watching import Visitor

from horovod.runner.watch import server
from horovod.runner.watch.dashboard import Dashboard


class Source:
    asked = None

    def views(self):
        yield {"end": "", "seen": [0, 0]}

    def ask(self, worker):
        self.asked = worker
        return worker == "3"


@pytest.fixture
def page():
    said, source = [], Source()
    made = Dashboard("127.0.0.1", 0, source, said.append)
    made.said, made.source = said, source
    yield made
    made.close()


def address(page):
    return re.search(r"http://\S+", page.said[-1])[0]


def test_strangers_get_nothing(page):
    stranger = Visitor(address(page))
    paths = [
        "/",
        "/events",
        "/page.js",
        "/stacks?worker=3",
        "/nowhere",
        "/?token=",
        "/?token=wrong",
        "/?token=%ff",
    ]
    for path in paths:
        assert stranger.get(path)[0] == 403, path
    stranger.cookie = "; ".join(f"{name}={value}" for name in (page._cookie, "x") for value in ("", "a", "é"))
    assert stranger.get("/events")[0] == 403
    assert page.source.asked is None
    assert stranger.enter() == 303  # wrong guesses spoil nothing


def test_an_address_works_once_and_gives_a_cookie(page):
    first = address(page)
    known, late = Visitor(first), Visitor(first)
    assert known.enter() == 303
    assert re.fullmatch(r"horovod_\d+=[\w-]{43}", known.cookie)
    assert late.enter() == 403 and late.cookie == ""
    assert "opened from 127.0.0.1" in page.said[-1] and address(page) != first
    second = Visitor(address(page))
    assert second.enter() == 303  # the one that was printed then
    for who in (known, second):
        assert who.get("/")[0] == 200
    assert known.enter() == 303  # who has the cookie may use the old address again


def test_the_cookie_and_the_headers_keep_others_out(page):
    status, headers, _ = Visitor(address(page)).get(address(page).split("/", 3)[3].join(["/", ""]))
    assert status == 303
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(headers["Set-Cookie"].split("; "))
    assert headers["Location"] == "/"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_only_get_and_only_the_files_of_the_page(page):
    known = Visitor(address(page))
    known.enter()
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"):
        assert known.get("/", method=method)[0] == 405, method
    traversals = ["/../dashboard.py", "/page/../../server.py", "/%2e%2e/server.py", "//etc/passwd",
                  "/page.html", "/..%2fserver.py", "/page.js/", "/page.js%00"]  # fmt: skip
    for path in traversals:
        assert known.get(path)[0] == 404, path
    for path, kind in (("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript"),
                       ("/icon.svg", "image/svg+xml")):  # fmt: skip
        status, headers, body = known.get(path)
        assert status == 200 and headers["Content-Type"].startswith(kind) and body


def test_the_page_loads_nothing_from_elsewhere(page):
    known = Visitor(address(page))
    known.enter()
    for path in ("/", "/page.css", "/page.js"):
        text = known.get(path)[2].decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//\w+\.\w+/|innerHTML|insertAdjacentHTML|eval\(", text), path


def test_stacks_are_asked_for_by_name(page):
    known = Visitor(address(page))
    known.enter()
    assert known.get("/stacks?worker=3")[0] == 204 and page.source.asked == "3"
    assert known.get("/stacks?worker=x")[0] == 404


def test_the_stream_has_the_views(page):
    known = Visitor(address(page))
    known.enter()
    assert list(known.views()) == [{"end": "", "seen": [0, 0]}]


def test_a_crowd_is_hung_up_on_and_the_page_stays(page):
    place = Visitor(address(page))._place
    crowd = []
    try:
        for _ in range(server.MAX_CONNECTIONS):  # say nothing
            crowd.append(socket.create_connection((place.hostname, place.port)))
        extra = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
        with pytest.raises((http.client.HTTPException, OSError)):
            extra.request("GET", "/")
            extra.getresponse()
    finally:
        for one in crowd:
            one.close()

    def answers():
        try:
            return Visitor(address(page)).get("/")[0] == 403
        except (http.client.HTTPException, OSError):
            return False

    until(answers, "there is room again")


@pytest.mark.parametrize(
    "request_line", [b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 70000]
)
def test_garbage_gets_a_number_at_most(page, request_line):
    place = Visitor(address(page))._place
    answer = b""
    with (
        socket.create_connection((place.hostname, place.port), timeout=60) as sock,
        contextlib.suppress(ConnectionError),  # it may hang up before it has heard everything
    ):
        sock.sendall(request_line)
        sock.shutdown(socket.SHUT_WR)
        while part := sock.recv(1 << 16):
            answer += part
    assert re.search(rb"(^|\n)(4\d\d|505)\n$", answer), answer
    assert Visitor(address(page)).get("/")[0] == 403
