# SPDX-License-Identifier: Apache-2.0
"""The parent of the workers of one host: starts them, says how they ended, and ends them when told to, or
when the one who tells (the launcher, or the agent on another host) is gone, be it by kill -9.

Run as a script, with the launcher's process id as its argument and a socket as standard input (see
local_host.py). Being a process of its own, with one thread, makes three things certain:

- Nobody is left behind: a worker is known here from the moment it is forked, and dies with this process too
  (PR_SET_PDEATHSIG, which follows the parent's *thread*: here there is only one).
- Nobody else is hit: a dead worker is not reaped before its process group is given up, so its number cannot
  have been given to a stranger when the group is signalled.
- Workers do not inherit what a launcher inherited: signals ignored by `nohup` or a shell's `&`.

Messages are a length (4 bytes) and marshalled tuples, between two processes of one Python on one machine:

    (START, worker, command, env, cwd)   with two descriptors: its standard output and standard error
    (END, worker or -1, grace)           SIGTERM, after the grace period SIGKILL
    (SIGNAL, number)                     to all; SIGQUIT only to those that catch it: it asks, and ends nobody
    (BYE,)                               all have ended, or may live on
    <- (EXITED, worker, code)            127, with a word on its standard error, if it could not be started

Imports next to nothing: it starts in milliseconds.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import select
import signal
import socket
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import typing

START, END, SIGNAL, BYE, EXITED = range(5)
ALL = -1
CANNOT_START = 127  # as in shells
LENGTH = struct.Struct(">I")
# How long workers have to end themselves when the launcher is gone.
ORPHAN_GRACE_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def pack(message: tuple[typing.Any, ...]) -> bytes:
    """A message as it travels."""
    data = marshal.dumps(message)
    return LENGTH.pack(len(data)) + data


class Incoming:
    """Cuts what arrives on the socket into messages, and keeps the descriptors that came with them."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._data = b""
        self._descriptors: list[int] = []

    def receive(self) -> list[typing.Any]:
        """Waits for data and returns the messages that are complete now; raises EOFError at the end."""
        data, descriptors, _, _ = socket.recv_fds(self._link, 1 << 16, 2)
        if not data:
            raise EOFError
        for descriptor in descriptors:  # Python leaves MSG_CMSG_CLOEXEC out, if given
            os.set_inheritable(descriptor, False)
        self._descriptors += descriptors
        self._data += data
        found = []
        while len(self._data) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                break
            found.append(marshal.loads(self._data[LENGTH.size : end]))
            self._data = self._data[end:]
        return found

    def descriptors(self) -> list[int]:
        """The two that belong to the START message at hand."""
        taken, self._descriptors = self._descriptors[:2], self._descriptors[2:]
        return taken


class Worker:
    """One child: its process id is also its process group, until the group is given up."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.ended = False
        self.kill_at: float | None = None  # when its grace period is over

    def signal(self, number: int) -> None:
        """Signals the group, or the child alone if it has not become a group's leader yet."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            if not self.ended:
                os.kill(self.pid, number)
        except PermissionError:
            pass  # a program that changed its user

    def ask(self, number: int) -> None:
        """Signals those of the group that catch this signal: not a shell around them, nor their loaders."""
        for name in os.listdir("/proc"):
            if name.isdigit() and _is_in(int(name), self.pid) and catches(int(name), number):
                try:
                    os.kill(int(name), number)
                except (ProcessLookupError, PermissionError):
                    pass


def _is_in(pid: int, group: int) -> bool:
    try:
        return os.getpgid(pid) == group
    except OSError:
        return False


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal: "SigCgt:\t0000000180014a07" in its status."""
    try:
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith("SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    except OSError:
        pass
    return False


class Guard:
    """Serves one launcher over a socket."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._incoming = Incoming(link)
        self._workers: dict[int, Worker] = {}
        self._left_alone = False
        self._child_died, write_end = os.pipe()
        os.set_blocking(write_end, False)
        os.set_blocking(self._child_died, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Obeys until told goodbye; without a launcher, until all workers have ended."""
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        poll.register(self._child_died, select.POLLIN)
        launcher = _watch_parent()
        if launcher is not None:
            poll.register(launcher, select.POLLIN)
        while not (self._left_alone and all(worker.ended for worker in self._workers.values())):
            ready = [descriptor for descriptor, _ in poll.poll(self._milliseconds())]
            if launcher in ready or (self._link.fileno() in ready and not self._obey()):
                if self._left_alone:
                    return  # goodbye
                self._left_alone = True
                poll.unregister(self._link)
                if launcher is not None:
                    poll.unregister(launcher)
                self._end(ALL, ORPHAN_GRACE_SECONDS)
            self._notice_ends()
            self._kill_the_late()

    def _obey(self) -> bool:
        """Does what was asked; False when nothing more will come."""
        try:
            messages = self._incoming.receive()
        except (EOFError, OSError):
            return False
        for kind, *values in messages:
            if kind == START:
                self._start(*values)
            elif kind == END:
                self._end(*values)
            elif kind == SIGNAL:
                for worker in self._workers.values():
                    if values[0] == signal.SIGQUIT:
                        worker.ask(signal.SIGQUIT)
                    else:
                        worker.signal(values[0])
            elif kind == BYE:
                self._left_alone = True
                return False
        return True

    def _tell(self, *message: object) -> None:
        try:
            self._link.sendall(pack(message))
        except OSError:
            pass  # the launcher is gone, which is noticed elsewhere

    # --------------------------------------------------------------------------------------- start

    def _start(self, worker: int, command: list[bytes], env: dict[bytes, bytes], cwd: bytes) -> None:
        out, err = self._incoming.descriptors()
        me = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                _become(me, command, env, cwd, out, err)
            self._workers[worker] = Worker(pid)
        except BaseException as error:
            why = getattr(error, "strerror", None) or str(error)
            text = f"cannot start {os.fsdecode(command[0])!r} in {os.fsdecode(cwd)}: {why}\n"
            os.write(err, text.encode(errors="replace"))
            if os.getpid() != me:
                os._exit(CANNOT_START)
            self._tell(EXITED, worker, CANNOT_START)  # not even a process could be had
        os.close(out)
        os.close(err)

    # ----------------------------------------------------------------------------------------- end

    def _end(self, which: int, grace: float) -> None:
        now = time.monotonic()
        for number, worker in list(self._workers.items()):
            if which not in (ALL, number):
                continue
            if worker.ended:
                self._give_up(number)
            else:
                worker.signal(signal.SIGTERM)
                worker.signal(signal.SIGCONT)  # a stopped process cannot obey
                worker.kill_at = now + grace

    def _notice_ends(self) -> None:
        try:
            os.read(self._child_died, 4096)
        except BlockingIOError:
            pass
        for number, worker in list(self._workers.items()):
            if worker.ended:
                continue
            state = os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if state is not None:
                worker.ended = True
                code = state.si_status if state.si_code == os.CLD_EXITED else 128 + state.si_status
                self._tell(EXITED, number, code)
                if worker.kill_at is not None:
                    self._give_up(number)

    def _give_up(self, number: int) -> None:
        """Ends what a dead worker has left behind, and forgets it."""
        worker = self._workers.pop(number)
        worker.signal(signal.SIGKILL)
        os.waitpid(worker.pid, 0)

    def _kill_the_late(self) -> None:
        for worker in self._workers.values():
            if worker.kill_at is not None and worker.kill_at <= time.monotonic():
                worker.signal(signal.SIGKILL)
                worker.kill_at = float("inf")

    def _milliseconds(self) -> float | None:
        """How long to wait for something to happen."""
        soonest = min((w.kill_at for w in self._workers.values() if w.kill_at is not None), default=None)
        if soonest is None or soonest == float("inf"):
            return None
        return max(soonest - time.monotonic(), 0.0) * 1000 + 1


def _become(
    parent: int, command: list[bytes], env: dict[bytes, bytes], cwd: bytes, out: int, err: int
) -> None:
    """Turns the forked child into the worker; never returns."""
    os.setsid()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(CANNOT_START)  # it died before the line above
    signal.set_wakeup_fd(-1)
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass  # reserved by the C library
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(source, target)
    os.chdir(cwd)
    try:
        os.execvpe(command[0], command, env)
    except OSError as error:
        if error.errno != errno.ENOEXEC or not _is_text(error.filename):
            raise
        # A script without "#!", which shells run too; the name is the path that was found.
        os.execve("/bin/sh", [b"/bin/sh", error.filename, *command[1:]], env)


def _is_text(path: bytes) -> bool:
    """As shells tell scripts from programs for another kind of machine."""
    with open(path, "rb") as file:
        return b"\0" not in file.readline(80)


def _watch_parent() -> int | None:
    """A descriptor that is readable once the launcher is dead, even if a fork of it still has the socket."""
    try:
        return os.pidfd_open(os.getppid())
    except (AttributeError, OSError):
        return None


def main() -> None:
    """Entry of the script."""
    launcher = int(sys.argv[1])
    # Ctrl-C in the launcher's terminal, or its hangup, must not end the one process that cleans up after it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    guard = Guard(socket.socket(fileno=0))
    if os.getppid() == launcher:
        guard.serve()


if __name__ == "__main__":
    main()
