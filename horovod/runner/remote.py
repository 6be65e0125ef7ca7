# SPDX-License-Identifier: Apache-2.0
"""The workers of one remote host, seen from the launcher: an agent at the other end of ssh."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from horovod.runner import agent
from horovod.runner.ssh import explain, python_command, remote_command
from horovod.runner.workers import GRACE_SECONDS, STDERR, STDOUT, WorkerSpec
from horovod.version import __version__

if TYPE_CHECKING:
    from horovod.runner.job import JobSettings

# Variables that describe this machine or session rather than the job.
_LOCAL_ONLY = re.compile(
    r"^(BASH_FUNC_.*|OLDPWD|PWD|HOSTNAME|SHLVL|_|SSH_.*|XDG_.*|DBUS_.*|DISPLAY|.*CUDA_VISIBLE_DEVICES)$"
)
_MARKER_SEARCH_LIMIT = 1 << 20


def is_exportable(name: str) -> bool:
    """Whether a variable of the launcher's environment is sent to other hosts."""
    return _LOCAL_ONLY.match(name) is None


class RemoteHost:
    """Starts and ends workers on a host; reports through callbacks that run on its threads.

    on_host("ready", text) once the workers run there; on_host("lost", reason) when the host is gone.
    """

    def __init__(
        self,
        host: str,
        settings: JobSettings,
        on_output: Callable[[int, int, bytes], None],
        on_exit: Callable[[int, int], None],
        on_host: Callable[[str, str], None],
    ) -> None:
        self.host = host
        self._settings = settings
        self._on_output, self._on_exit, self._on_host = on_output, on_exit, on_host
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._complaints: List[str] = []
        self._left = 0
        self._ending = False
        self._reached = False
        self._lock = threading.Lock()
        self._reader: Optional[threading.Thread] = None

    def start(self, specs: List[WorkerSpec]) -> None:
        """Connects and hands the workers over. Returns at once; see on_host."""
        settings = self._settings
        command = python_command("horovod.runner.agent", settings.env)
        argv = remote_command(
            self.host,
            command,
            settings.ssh_port,
            settings.ssh_identity_file,
            max(int(settings.start_timeout), 1),
        )
        self._left = len(specs)
        with self._lock:
            if self._ending:
                return
            try:
                # A session of its own: Ctrl-C in the terminal is for the launcher, which ends all in order.
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                self._on_host("lost", f"cannot run {argv[0]}: {error.strerror}; install an ssh client")
                return
        threading.Thread(target=self._listen_to_complaints, daemon=True).start()
        self._reader = threading.Thread(target=self._read, name=f"horovod-{self.host}", daemon=True)
        self._reader.start()
        self._send(json.dumps(_setup(specs)).encode() + b"\n")

    def signal(self, number: int) -> None:
        """Signals every worker there."""
        self._send(b"signal %d\n" % number)

    def pause(self) -> None:
        """Tells the host that this launcher will be silent for a while (Ctrl-Z)."""
        self._send(b"pause\n")

    def terminate(self) -> None:
        """Ends the workers there, and the connection."""
        with self._lock:
            self._ending = True
        if self._process is None:
            return
        self._send(b"terminate\n")
        if not self._reached:
            self._process.kill()  # still connecting: nothing to end over there
        try:
            self._process.wait(GRACE_SECONDS + 2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()  # the agent sees the end of file and ends its workers by itself
            self._process.wait()

    def close(self) -> None:
        """Closes the connection after all workers have ended."""
        if self._process is None:
            return
        if self._reader is not None:
            self._reader.join(5.0)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    pass
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    # ------------------------------------------------------------------------------------- private

    def _send(self, data: bytes) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            try:
                process.stdin.write(data)
                process.stdin.flush()
            except (OSError, ValueError):
                pass  # the reading side reports why

    def _ping(self) -> None:
        """Lets the agent tell a cut link from a quiet launcher."""
        assert self._process is not None
        while self._process.poll() is None and not self._ending:
            self._send(b"ping\n")
            time.sleep(agent.PING_SECONDS)

    def _listen_to_complaints(self) -> None:
        """Collects what ssh itself prints: the reason when it fails."""
        assert self._process is not None and self._process.stderr is not None
        try:
            for line in self._process.stderr:
                text = line.decode(errors="replace").rstrip()
                if not text.startswith("Warning: Permanently added"):
                    self._complaints = (self._complaints + [text])[-20:]
        except ValueError:
            pass  # closed meanwhile

    def _read(self) -> None:
        assert self._process is not None
        try:
            self._skip_to_marker()
            self._reached = True
            while self._read_frame():
                pass
        except (OSError, ValueError, EOFError):
            pass
        if self._left > 0 and not self._ending:
            code = self._process.wait()
            time.sleep(0.05)  # let the other thread read the last complaint
            reason = explain(code, "\n".join(self._complaints), self._reached)
            self._on_host("lost" if self._reached else "unreachable", reason)

    def _skip_to_marker(self) -> None:
        stdout = self._process.stdout if self._process else None
        assert stdout is not None
        seen = b"\n"
        while not seen.endswith(agent.MARKER):
            byte = stdout.read(1)
            if not byte or len(seen) > _MARKER_SEARCH_LIMIT:
                raise EOFError("no agent answered")
            seen += byte

    def _read_frame(self) -> bool:
        stdout = self._process.stdout if self._process else None
        assert stdout is not None
        header = stdout.read(agent.FRAME.size)
        if len(header) < agent.FRAME.size:
            return False
        kind, rank, length = agent.FRAME.unpack(header)
        data = stdout.read(length)
        if len(data) < length:
            return False
        if kind in (STDOUT, STDERR):
            self._on_output(rank, kind, data)
        elif kind == agent.EXIT:
            self._left -= 1
            self._on_exit(rank, int(data))
        elif kind == agent.READY:
            self._ready(json.loads(data))
        return True

    def _ready(self, facts: Dict[str, str]) -> None:
        if facts["version"] != __version__:
            self._on_host(
                "unreachable",
                f"it runs Horovod {facts['version']}, this host {__version__}: install the same on all",
            )
        else:
            threading.Thread(target=self._ping, daemon=True).start()
            self._on_host("ready", f"calls itself {facts['host']}")


def _setup(specs: List[WorkerSpec]) -> Dict[str, object]:
    """What the agent is told; variables common to all workers are sent once."""
    envs = [{k: v for k, v in spec.env.items() if is_exportable(k)} for spec in specs]
    common = {k: v for k, v in envs[0].items() if all(env.get(k) == v for env in envs)}
    workers = [
        {"rank": spec.rank, "command": spec.command, "env": {k: v for k, v in env.items() if k not in common}}
        for spec, env in zip(specs, envs)
    ]
    return {"cwd": specs[0].cwd or "/", "env": common, "workers": workers}
