# SPDX-License-Identifier: Apache-2.0
"""Jobs of tests/runner/scripts/watched.py that tests look into from outside."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

from launching import HOROVODRUN, ROOT, default_signals, environment, horovodrun
from waiting import until

SCRIPT = os.path.join(ROOT, "tests", "runner", "scripts", "watched.py")


class WatchedJob:
    """horovodrun with some flags, until the `with` ends; ranks end when their file appears.

    Attributes:
        pids: by rank, once `wait_for_ranks` has returned.
        stuck: a file; the rank of `stuck_rank` waits while it is there.
    """

    def __init__(self, folder, ranks, *flags, stuck_rank=None, launcher=HOROVODRUN, command=None, env=None):
        self._end, self.stuck = str(folder / "end"), str(folder / "stuck")
        self._ranks, self.pids = ranks, {}
        self.out, self.err = [], []
        program = command or [sys.executable, SCRIPT, "--until", self._end]
        if stuck_rank is not None:
            program += ["--stuck-rank", str(stuck_rank), "--stuck-file", self.stuck]
        self.process = subprocess.Popen(
            [*launcher, "-np", str(ranks), *flags, *program], text=True, env=env or environment(),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=default_signals,
        )  # fmt: skip
        self._readers = [
            threading.Thread(target=lambda s=stream, into=lines: into.extend(s), daemon=True)
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    def wait_for_ranks(self):
        """Until all ranks train."""

        def known():
            for line in list(self.out):
                # MPICH's mpirun may put two ranks' lines into one.
                for found in re.finditer(r"rank (\d+) trains in process (\d+)", line):
                    self.pids[int(found[1])] = int(found[2])
            assert self.process.poll() is None, self.err
            return len(self.pids) == self._ranks

        until(known, "all ranks train")
        return self

    def _heard(self, pattern):
        return [m for m in (re.search(pattern, line) for line in list(self.err)) if m]

    def said(self, pattern):
        """What the launcher says on standard error; waits for it."""
        until(lambda: self._heard(pattern), f"horovodrun says {pattern}")
        return self._heard(pattern)[-1]

    def shows(self, *patterns):
        """Asks by SIGQUIT, and again each second, until horovodrun has shown all of these.

        One rank gets stuck before the others have come to where they wait for it.
        """
        asked = 0.0

        def shown():
            nonlocal asked
            if time.monotonic() - asked >= 1.0:
                asked = time.monotonic()
                self.process.send_signal(signal.SIGQUIT)
            return all(map(self._heard, patterns))

        until(shown, f"horovodrun shows {patterns}")

    def stacks(self, words, name=None):
        """What `horovodrun --stacks` says; asks, and again, until it says these of the ranks.

        Args:
            words: by the title of a rank, e.g. {"rank 1 on localhost": "allreduce"}.
            name: of the job; by default the process id of its launcher.
        """
        said = ""

        def told():
            nonlocal said
            done = horovodrun("--stacks", name or str(self.process.pid))
            assert done.returncode == 0, done.stderr
            said = done.stdout
            parts = said.split("---- ")
            return all(
                any(part.startswith(title) and word in part for part in parts)
                for title, word in words.items()
            )

        until(told, f"the stacks have {words}")
        return said

    def address(self):
        """The newest address of the dashboard."""
        return self.said(r"(http://\S+\?token=\S+)")[1]

    def freeze(self, rank):
        """Stops a rank as a debugger would."""
        os.kill(self.pids[rank], signal.SIGSTOP)

    def thaw(self, rank):
        """Lets it go on."""
        os.kill(self.pids[rank], signal.SIGCONT)

    def finish(self):
        """Ends the training; the launcher's exit status."""
        open(self._end, "w").close()
        code = self.process.wait(60)
        for reader in self._readers:  # all that was printed has been read
            reader.join(60)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for pid in self.pids.values():
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)


class Visitor:
    """A client of the page without a browser."""

    def __init__(self, address):
        self._place = urlsplit(address)
        self.cookie = ""

    def get(self, path, method="GET", **headers):
        """(status, headers, body) of a request."""
        connection = http.client.HTTPConnection(self._place.hostname, self._place.port, timeout=60)
        connection.putrequest(method, path, skip_host=False)
        for name, value in {"Cookie": self.cookie, **headers}.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, answer.headers, body

    def enter(self):
        """Uses the token of the address."""
        status, headers, _ = self.get(f"/?{self._place.query}")
        self.cookie = (headers.get("Set-Cookie") or "").split(";")[0]
        return status

    def views(self):
        """The views as the server sends them."""
        connection = http.client.HTTPConnection(self._place.hostname, self._place.port, timeout=60)
        connection.request("GET", "/events", headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        assert answer.status == 200
        try:
            for line in answer:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        finally:
            connection.close()

    def wait_for(self, condition, most=60):
        """The first view for which a condition holds."""
        view = None
        for _, view in zip(range(most), self.views()):
            if condition(view):
                return view
        raise AssertionError(f"never seen; the last view: {view}")


def row(view, rank):
    """A rank of a view."""
    return next(one for one in view["ranks"] if one["rank"] == rank)
