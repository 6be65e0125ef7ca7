# SPDX-License-Identifier: Apache-2.0
"""`horovodrun --stacks JOB`: what the ranks of a job that runs are doing, asked from another shell.

The launcher of a job whose ranks report listens on a socket in a directory that only its user may enter:
/tmp/horovod-1000/4711.sock, named after the launcher's process. Whoever connects is sent the report. A job
whose ranks do not report is sent SIGQUIT, which has them print their stacks into the job's own output.
"""

from __future__ import annotations

import os
import signal
import socket
import stat
import struct
import threading
import time
from typing import Callable, Dict, List, Optional

from horovod.runner.guard import catches

_SUFFIX = ".sock"
_ANSWER_SECONDS = 15.0


class StackServer:
    """Answers until close(). That it cannot be had (a full disk) does not end a job: the user is told.

    Args:
        answer: makes the report; may take a few seconds.
    """

    def __init__(self, answer: Callable[[], str], say: Callable[[str], None]) -> None:
        self._answer = answer
        self._socket: Optional[socket.socket] = None
        try:
            self._path = os.path.join(folder(make=True), f"{os.getpid()}{_SUFFIX}")
            _remove(self._path)
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.bind(self._path)
            os.chmod(self._path, 0o600)
            self._socket.listen(8)
        except OSError as error:
            say(f"`horovodrun --stacks` will not reach this job: {error}")
            self.close()
            return
        threading.Thread(target=self._serve, args=(self._socket,), name="horovod-stacks", daemon=True).start()

    def close(self) -> None:
        """Stops listening."""
        if self._socket is not None:
            _remove(self._path)
            with_shutdown, self._socket = self._socket, None
            try:
                with_shutdown.shutdown(socket.SHUT_RDWR)  # wakes accept
            except OSError:
                pass
            with_shutdown.close()

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(_ANSWER_SECONDS)
                try:
                    if _peer(client) in (os.getuid(), 0):
                        client.sendall(self._answer().encode("utf-8", "replace"))
                except OSError:
                    pass  # it did not wait


def folder(make: bool = False) -> str:
    """The directory of this user's sockets. Raises OSError if it is missing, or others may enter it."""
    path = f"/tmp/horovod-{os.getuid()}"
    if make:
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path} is not a directory that only you may enter: remove it")
    return path


# ------------------------------------------------------------------------------------ the other shell --


def ask(job: str) -> str:
    """The report of a running job.

    Args:
        job: the process id of its launcher, or a word of its command line; "": lists the jobs.

    Raises:
        ValueError: there is no such job, or more than one.
    """
    jobs = running()
    if not job:
        return (
            "".join(f"{pid:>8}  {command}\n" for pid, command in jobs.items()) or "No job of yours reports.\n"
        )
    found = [
        pid for pid, command in jobs.items() if job == str(pid) or (not job.isdigit() and job in command)
    ]
    if len(found) > 1:
        listed = "".join(f"\n{pid:>8}  {jobs[pid]}" for pid in found)
        raise ValueError(f"--stacks {job}: more than one job is called so; give a number:{listed}")
    if not found:
        return _by_signal(job)
    return _read(os.path.join(folder(), f"{found[0]}{_SUFFIX}"))


def running() -> Dict[int, str]:
    """This user's jobs whose ranks report: the launcher's process id -> its command line."""
    try:
        names = os.listdir(folder())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(str(error)) from error
    jobs = {}
    for name in sorted(names):
        pid = name[: -len(_SUFFIX)]
        if not name.endswith(_SUFFIX) or not pid.isdigit():
            continue
        command = _command(int(pid))
        if command:
            jobs[int(pid)] = " ".join(command)
        else:
            _remove(os.path.join(folder(), name))  # its launcher was killed
    return jobs


def _by_signal(job: str) -> str:
    command = _command(int(job)) if job.isdigit() else []
    is_ours = any(word.endswith(("horovodrun", "horovod.runner.launch")) for word in command)
    if not is_ours or not catches(int(job), signal.SIGQUIT):  # else it would die of it
        raise ValueError(
            f"--stacks {job}: no such job runs here; horovodrun --stacks lists those that report"
        )
    os.kill(int(job), signal.SIGQUIT)
    return (
        "The ranks of this job do not report (it was started without --observe, --dashboard, --top or "
        "--metrics-port): they print their stacks into its own output.\n"
    )


def _read(path: str) -> str:
    deadline = time.monotonic() + _ANSWER_SECONDS
    parts: List[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(path)
        while True:
            sock.settimeout(max(deadline - time.monotonic(), 0.1))
            part = sock.recv(1 << 16)
            if not part:
                return b"".join(parts).decode("utf-8", "replace")
            parts.append(part)


def _command(pid: int) -> List[str]:
    """The words of a process' command line; none if there is no such process."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [word.decode("utf-8", "replace") for word in file.read().split(b"\0") if word]
    except OSError:
        return []


def _peer(client: socket.socket) -> int:
    """The user at the other end."""
    found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", found)[1])


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
