# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over its own protocol through a pipe: nothing to install beside the browser."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "no Chromium here (scripts/setup-system.sh installs it)"


class Browser:
    """One page in a browser of its own; use it with `with`.

    Args:
        profile: an empty directory for the browser's files.
        width, height: of the page, in CSS pixels.
    """

    def __init__(self, profile, width=1200, height=900):
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
            f"--user-data-dir={profile}", "--remote-debugging-pipe",
        ]  # fmt: skip
        ours, theirs = os.pipe(), os.pipe()  # it reads from the first and writes to the second

        def place():  # the protocol wants descriptors 3 and 4
            reads, writes = os.dup2(ours[0], 100), os.dup2(theirs[1], 101)
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        self._process = subprocess.Popen(
            [CHROMIUM, *options], preexec_fn=place, close_fds=False, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(ours[0])
        os.close(theirs[1])
        self._out, self._in = os.fdopen(ours[1], "wb", 0), os.fdopen(theirs[0], "rb", 0)
        self._rest, self._number, self._session = b"", 0, None
        self.requests = []  # addresses that the page asked for
        self._loaded = set()  # what has loaded, by the browser's own name for it
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._call("Network.enable")
        self._call("Page.enable")
        self._call("Page.setLifecycleEventsEnabled", enabled=True)
        self.resize(width, height)

    def resize(self, width, height, scale=1, mobile=False):
        """Gives the page another size."""
        size = dict(width=width, height=height, deviceScaleFactor=scale, mobile=mobile)
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def open(self, url):
        """Goes to an address; returns when the page is there."""
        wanted = self._call("Page.navigate", url=url)["loaderId"]
        while wanted not in self._loaded:  # not the empty page, which a slow browser may still load
            self._note(self._receive())

    def evaluate(self, expression):
        """The value of a JavaScript expression in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path):
        """Writes what is to be seen into a PNG file."""
        data = self._call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._out.close()
        self._in.close()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)  # with its helpers: the session is its own
        except ProcessLookupError:
            pass
        self._process.wait()

    def _call(self, method, **arguments):
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if self._session is not None:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            self._note(answer)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _note(self, message):
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        elif message.get("method") == "Page.lifecycleEvent" and message["params"]["name"] == "load":
            self._loaded.add(message["params"]["loaderId"])

    def _receive(self):
        while b"\0" not in self._rest:
            part = self._in.read(1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)
