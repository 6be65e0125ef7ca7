# SPDX-License-Identifier: Apache-2.0
"""The job as a page in a browser: who may see it, what it is made of, and how it is kept up to date.

    /?token=...   the address that is printed; works once, gives the browser a cookie, leads to the page
    /             the page, with the two files it needs
    /events       server-sent events: the view (collector.view), about once a second
    /stacks       asks a rank for its Python stacks: /stacks?worker=3

Without the cookie there is nothing but 403.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from importlib import resources
from typing import Any, Callable, Dict, Iterator, Optional, Protocol, Tuple

from horovod.runner.watch.server import Request, Response, Server

_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_REFUSED = Response(403, b"Open the address that horovodrun printed. It works once for each browser.\n")


class Source(Protocol):
    """Where the page gets what it shows (watcher.Watcher)."""

    def views(self) -> Iterator[Dict[str, Any]]:
        """The view now, and again each second until the job has ended."""

    def ask(self, worker: str) -> bool:
        """Asks a worker for its stacks; whether there is one of that name."""


class Dashboard:
    """Serves the page until close().

    Args:
        say: tells the user the address; again with a new one each time that somebody has used it.
    """

    def __init__(self, address: str, port: int, source: Source, say: Callable[[str], None]) -> None:
        self._source, self._say = source, say
        self._lock = threading.Lock()  # guards the token, which two must not use
        self._session = secrets.token_urlsafe(32)
        self._token = secrets.token_urlsafe(24)
        self._server = Server(address, port, self._answer, "--dashboard")
        # Browsers keep cookies by host, whatever the port: two jobs on one host must not share a name.
        self._cookie = f"horovod_{self._server.port}"
        self._say(f"dashboard: {self._address()}")

    def close(self) -> None:
        """Stops listening."""
        self._server.close()

    def _address(self) -> str:
        return self._server.url(f"/?token={self._token}")

    def _answer(self, request: Request) -> Response:
        is_known = _same(request.cookie(self._cookie), self._session)
        if "token" in request.query and request.path == "/":
            return self._enter(request, is_known)
        if not is_known:
            return _REFUSED
        if request.path == "/events":
            return Response(body=self._stream(), kind="text/event-stream")
        if request.path == "/stacks":
            found = self._source.ask(request.query.get("worker", ""))
            return Response(204 if found else 404)
        return _file(request.path)

    def _enter(self, request: Request, is_known: bool) -> Response:
        given = request.query["token"]
        if not is_known:
            with self._lock:
                if not _same(given, self._token):
                    return _REFUSED
                self._token = secrets.token_urlsafe(24)
            self._say(f"dashboard opened from {request.peer}; for another browser: {self._address()}")
        cookie = f"{self._cookie}={self._session}; HttpOnly; SameSite=Strict; Path=/"
        return Response(303, headers={"Location": "/", "Set-Cookie": cookie})

    def _stream(self) -> Iterator[bytes]:
        for view in self._source.views():
            yield f"data: {json.dumps(view)}\n\n".encode()


def _file(path: str) -> Response:
    """One of the files of the page: a fixed list, so no path of a request ever reaches the disk."""
    found: Optional[Tuple[str, str]] = _FILES.get(path)
    if found is None:
        return Response(404, b"404\n")
    return Response(body=(resources.files(__package__) / "page" / found[0]).read_bytes(), kind=found[1])


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
