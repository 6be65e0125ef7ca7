# SPDX-License-Identifier: Apache-2.0
"""The way to an agent that ssh starts on another host."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from horovod.runner import agent
from horovod.runner.channel import ChannelError, PipeChannel
from horovod.runner.ssh import explain, python_command, remote_command

if TYPE_CHECKING:
    from horovod.runner.settings import JobSettings

_MARKER_SEARCH_LIMIT = 1 << 20
_COMPLAINTS = 30  # lines of what ssh prints that are kept
_HANG_UP_SECONDS = 2.0


class SshChannel(PipeChannel):
    """See channel.AgentChannel."""

    def __init__(self, host: str, settings: JobSettings) -> None:
        super().__init__(-1, -1)
        self._argv = remote_command(
            host,
            python_command("horovod.runner.agent", settings.env),
            settings.ssh_port,
            settings.ssh_identity_file,
            max(int(settings.start_timeout), 1),
            settings.network_timeout,
        )
        self._host = host
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._complaints: List[str] = []
        self._listener = threading.Thread(target=self._listen_to_complaints, daemon=True)
        self._closing = threading.Lock()
        self._closed = self._reached = False

    def open(self) -> Dict[str, Any]:
        """Starts ssh and waits for the agent's first message."""
        with self._closing:
            if self._closed:
                raise ChannelError("the job is ending")
            try:
                # A session of its own: Ctrl-C in the terminal is for the launcher, which ends all in order.
                self._process = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    start_new_session=True,
                )
            except OSError as error:
                raise ChannelError(
                    f"cannot run {self._argv[0]}: {error.strerror}; install an ssh client"
                ) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._read_end, self._write_end = self._process.stdout.fileno(), self._process.stdin.fileno()
        self._listener.start()
        try:
            self.skip_past(agent.MARKER, _MARKER_SEARCH_LIMIT)
            message = self.receive()
        except (EOFError, OSError):
            raise ChannelError(self.why_ended()) from None
        assert message is not None
        self._reached = True
        facts: Dict[str, Any] = json.loads(agent.unpack(message)[2])
        return facts

    def why_ended(self) -> str:
        """What ssh said when it ended."""
        if self._process is None:
            return "ssh was not started"
        try:
            code = self._process.wait(_HANG_UP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._listener.join(1.0)  # for the last complaint
        return explain(code, "\n".join(self._complaints), self._reached, self._host)

    def close(self) -> None:
        """Hangs up; the agent ends its workers by itself if there still are any."""
        with self._closing:
            self._closed = True
        if self._process is None:
            return
        if not self._reached:
            self._process.kill()  # still connecting: nothing to end over there
        assert self._process.stdin is not None
        if self._lock.acquire(timeout=_HANG_UP_SECONDS):  # not while a message is being written
            self._process.stdin.close()
            self._write_end = -1
            self._lock.release()
        try:
            self._process.wait(_HANG_UP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listen_to_complaints(self) -> None:
        """Collects what ssh itself prints: the reason when it fails."""
        assert self._process is not None and self._process.stderr is not None
        for line in self._process.stderr:
            text = line.decode(errors="replace").rstrip()
            if not text.startswith("Warning: Permanently added"):
                self._complaints = (self._complaints + [text])[-_COMPLAINTS:]
