# SPDX-License-Identifier: Apache-2.0
"""A small HTTP server on Python's own: GET only, one address, few connections, nothing cached."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Union
from urllib.parse import parse_qs, urlsplit

# At a time; more are hung up on. Pages hold one each.
MAX_CONNECTIONS = 64
# For a request to arrive, and for a reader to take what it is sent.
_PATIENCE_SECONDS = 10.0

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True)
class Request:
    """One GET."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    peer: str

    def cookie(self, name: str) -> str:
        """A cookie's value; "" where there is none."""
        try:
            found = SimpleCookie(self.headers.get("Cookie", "")).get(name)
        except CookieError:
            return ""
        return found.value if found else ""


@dataclass(frozen=True)
class Response:
    """What is answered; a body of parts is sent as they come, until the client hangs up."""

    status: int = 200
    body: Union[bytes, Iterable[bytes]] = b""
    kind: str = "text/plain; charset=utf-8"
    headers: Dict[str, str] = field(default_factory=dict)


class Server:
    """Serves until close(), on threads of its own.

    Args:
        address, port: where to listen; port 0 takes a free one.
        answer: called for every request, on any thread.
        flag: who asked for it, for errors, e.g. "--dashboard".
    """

    def __init__(self, address: str, port: int, answer: Callable[[Request], Response], flag: str) -> None:
        class Handler(_Handler):
            respond = staticmethod(answer)

        try:
            family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
            made = type("_Server", (_Server,), {"address_family": family})
            self._server = made(where[:2], Handler)
        except OSError as error:
            raise ValueError(
                f"{flag}: cannot listen on {address} port {port}: {error.strerror or error}. Is it in use? "
                "Port 0 takes a free one"
            ) from error
        self.address, self.port = self._server.server_address[:2]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.2,), name=f"horovod-{flag.lstrip('-')}", daemon=True
        )
        self._thread.start()

    def url(self, path: str) -> str:
        """The address of a page, for people of this machine."""
        return f"http://{_reachable(self.address)}:{self.port}{path}"

    def close(self) -> None:
        """Stops listening. Streams end by themselves, when their parts do."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_CONNECTIONS
    allow_reuse_address = True

    def __init__(self, *args: Any) -> None:
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(*args)

    def server_bind(self) -> None:
        # The base class asks the name service for its own name, which may take its time.
        socket.socket.setsockopt(self.socket, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "horovod", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client's connection broke: nothing that the job's user needs to read


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "horovod", ""
    timeout = _PATIENCE_SECONDS
    respond: Callable[[Request], Response]

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        request = Request(parts.path, query, dict(self.headers.items()), str(self.client_address[0]))
        self._send(type(self).respond(request))

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        headers = {"Content-Type": response.kind, **_HEADERS, **response.headers}
        if isinstance(response.body, bytes):
            headers["Content-Length"] = str(len(response.body))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for part in [response.body] if isinstance(response.body, bytes) else response.body:
            self.wfile.write(part)
            self.wfile.flush()

    def send_error(self, code: int, message: Optional[str] = None, explain: Optional[str] = None) -> None:
        """Nothing but the number: whoever sends such requests needs no page."""
        refused = Response(405, b"only GET\n", headers={"Allow": "GET"})
        self._send(refused if code == 501 else Response(code, f"{code}\n".encode()))

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _reachable(address: Any) -> str:
    text = str(address)
    if text in ("0.0.0.0", "::"):
        text = socket.gethostname()
    return f"[{text}]" if ":" in text else text
