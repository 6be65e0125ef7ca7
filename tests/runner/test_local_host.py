# SPDX-License-Identifier: Apache-2.0
"""Workers on this machine: started and ended one by one, never left behind, never confused with others."""

from __future__ import annotations

import os
import queue
import resource
import signal
import subprocess
import sys
import threading

import pytest
from launching import alive, default_signals, environment, still_there
from waiting import until

from horovod.runner import guard, local_host
from horovod.runner.host_runner import STDERR, STDOUT, HostReady, WorkerExited, WorkerSpec
from horovod.runner.local_host import LocalHost, check_room


class Watched:
    """A host runner whose reports a test can wait for."""

    def __init__(self):
        self.events = queue.Queue()
        self.printed = {}
        self.arrived = threading.Condition()
        self.blocked = threading.Event()
        self.blocked.set()
        self.host = LocalHost("here", self._output, self.events.put)

    def _output(self, worker, channel, data):
        self.blocked.wait()
        with self.arrived:
            self.printed[worker, channel] = self.printed.get((worker, channel), b"") + data
            self.arrived.notify_all()

    def start(self, worker, script, **env):
        self.host.start(WorkerSpec(worker, ["sh", "-c", script], environment(**env)))

    def line(self, worker, channel=STDOUT):
        """Waits for a whole line of a worker, and takes it."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: b"\n" in self.printed.get((worker, channel), b""), 60)
            line, self.printed[worker, channel] = self.printed[worker, channel].split(b"\n", 1)
            return line.decode()

    def event(self):
        return self.events.get(timeout=60)


@pytest.fixture
def watched():
    made = Watched()
    made.host.open()
    assert made.event() == HostReady("here")
    yield made
    made.blocked.set()
    made.host.terminate(0.0)
    made.host.close()


def test_one_more_worker_can_be_started_and_one_ended(watched):
    for worker in range(3):
        watched.start(worker, "echo $$; sleep 1000")
    pids = [int(watched.line(worker)) for worker in range(3)]
    watched.host.end(1)
    assert watched.event() == WorkerExited("here", 1, 128 + signal.SIGTERM)
    assert [alive(pid) for pid in pids] == [True, False, True]
    watched.start(7, "echo again; exit 5")
    assert watched.line(7) == "again" and watched.event() == WorkerExited("here", 7, 5)
    watched.start(8, "trap '' TERM; echo; while :; do sleep 0.1; done")
    watched.line(8)
    watched.host.end(8, grace=0.1)
    assert watched.event() == WorkerExited("here", 8, 128 + signal.SIGKILL)


def test_a_worker_holds_no_descriptors_of_the_others(watched):
    """Else the end of one is reported only after the wait for those who might still write to its pipes."""
    for worker in range(4):
        watched.start(worker, "echo $$; sleep 1000; :")  # the shell stays: a loader opens files
    pids = [watched.line(worker) for worker in range(4)]
    assert [sorted(os.listdir(f"/proc/{pid}/fd")) for pid in pids] == [["0", "1", "2"]] * 4


def test_ending_a_worker_ends_what_it_started_too(watched):
    watched.start(0, "sleep 1000 & echo $!; sleep 1001 & echo $!; trap '' TERM; wait; sleep 1002")
    children = [int(watched.line(0)), int(watched.line(0))]
    watched.host.end(0, grace=0.2)
    assert watched.event().worker == 0 and still_there(children) == []


def test_what_an_ended_worker_left_behind_can_still_be_ended(watched):
    watched.start(0, "sleep 1000 >/dev/null 2>&1 & echo $!; exit 0")
    child = int(watched.line(0))
    assert watched.event() == WorkerExited("here", 0, 0) and alive(child)
    watched.host.end(0)
    assert still_there([child]) == []


def test_a_dead_workers_number_belongs_to_nobody_else_while_it_may_be_signalled(watched):
    """Its parent reaps it only when its group is given up: until then the kernel keeps the number."""
    watched.start(0, "echo $$")
    pid = int(watched.line(0))
    assert watched.event() == WorkerExited("here", 0, 0)
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        assert stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    watched.host.signal(signal.SIGTERM)
    watched.host.end(0)
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the number is free")


def test_a_stopped_worker_can_be_ended_in_order(watched):
    watched.start(0, "trap 'echo bye; exit 4' TERM; echo $$; while :; do sleep 0.05; done")
    os.kill(int(watched.line(0)), signal.SIGSTOP)
    watched.host.end(0, grace=60)
    assert watched.line(0) == "bye" and watched.event() == WorkerExited("here", 0, 4)


def test_signals_reach_every_worker(watched):
    for worker in range(2):
        watched.start(worker, "trap 'exit 9' USR1; echo; while :; do sleep 0.02; done")
        watched.line(worker)
    watched.host.signal(signal.SIGUSR1)
    assert {watched.event() for _ in range(2)} == {WorkerExited("here", worker, 9) for worker in range(2)}


def test_what_cannot_be_started_says_so(watched):
    for worker, (command, folder) in enumerate([("no-such-program", "/"), ("true", "/no/such/folder")]):
        watched.host.start(WorkerSpec(worker, [command], environment(), folder))
        text = f"cannot start {command!r} in {folder}: No such file or directory"
        assert watched.line(worker, STDERR) == text
        assert watched.event() == WorkerExited("here", worker, 127)


def test_a_script_without_an_interpreter_line_is_the_shells(watched, tmp_path):
    script = tmp_path / "no interpreter"
    script.write_text('echo "$0|$1|$2|$MINE"; exit 6\n')
    script.chmod(0o755)
    env = environment(MINE="x", PATH=f"{tmp_path}:{os.environ['PATH']}")
    ways = [("./no interpreter", "./no interpreter"), (script.name, str(script)), (str(script), str(script))]
    for worker, (command, shown) in enumerate(ways):
        watched.host.start(WorkerSpec(worker, [command, "a b", "-c"], env, str(tmp_path)))
        assert watched.line(worker) == f"{shown}|a b|-c|x"
        assert watched.event() == WorkerExited("here", worker, 6)


def test_a_program_for_another_kind_of_machine_is_not_the_shells(watched, tmp_path):
    program = tmp_path / "foreign"
    program.write_bytes(b"\x7fELF\0\0\0\0")
    program.chmod(0o755)
    watched.host.start(WorkerSpec(0, [str(program)], environment()))
    assert "Exec format error" in watched.line(0, STDERR)
    assert watched.event() == WorkerExited("here", 0, 127)


def test_arguments_and_variables_may_be_any_bytes(watched):
    odd = os.fsdecode(b"\xff\xfe=\n ")
    command = ["sh", "-c", 'printf %s "$0$ODD" | od -An -tx1', odd]
    watched.host.start(WorkerSpec(0, command, dict(environment(), ODD=odd)))
    assert watched.line(0).split() == ["ff", "fe", "3d", "0a", "20"] * 2


IGNORED = "import signal,subprocess,sys; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]; "


def test_workers_see_signals_that_the_launcher_ignores():
    """nohup and a shell's & leave signals ignored in all children, and a mask would be inherited too."""
    code = (
        "import signal, queue, sys\n"
        "from horovod.runner.local_host import LocalHost\n"
        "from horovod.runner.host_runner import WorkerSpec\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
        "events = queue.Queue()\n"
        "host = LocalHost('here', lambda w, c, data: data and print(data.decode(), end=''), events.put)\n"
        "host.open(); events.get()\n"
        "command = ['grep', '-E', 'Sig(Ign|Blk)', '/proc/self/status']\n"
        "host.start(WorkerSpec(0, command, {'PATH': '/usr/bin:/bin'}))\n"
        "events.get(); host.close()\n"
    )
    start = IGNORED + "sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"
    done = subprocess.run(
        [sys.executable, "-c", start, code], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    masks = dict(line.split() for line in done.stdout.splitlines())
    own = 0b11 << 31  # 32 and 33 are the C library's: it lets nobody change them, so they stay as inherited
    assert set(masks) == {"SigBlk:", "SigIgn:"} and {int(mask, 16) & ~own for mask in masks.values()} == {0}


def test_a_failure_is_reported_while_nobody_takes_the_output(watched, monkeypatch):
    monkeypatch.setattr(local_host, "_FAILURE_SECONDS", 0.2)
    watched.blocked.clear()
    watched.start(0, "echo much; exit 3")
    assert watched.event() == WorkerExited("here", 0, 3)
    watched.start(1, "sleep 1000")
    watched.host.terminate(0.0)  # is not kept by it either
    end = watched.event()  # while it starts it does not obey SIGTERM yet
    assert end.worker == 1 and end.code in (128 + signal.SIGTERM, 128 + signal.SIGKILL)


def test_the_output_comes_before_the_end(watched):
    watched.start(0, "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done")
    assert watched.event() == WorkerExited("here", 0, 0)
    assert watched.printed[0, STDOUT].count(b"\n") == 3000


def test_workers_go_with_their_guard(watched):
    """Somebody kills everything whose command line says horovod, which the workers' does not."""
    watched.start(0, "echo $$; sleep 1000")
    pid = int(watched.line(0))
    os.kill(watched.host._guard.pid, signal.SIGKILL)
    assert watched.event() == WorkerExited("here", 0, 128 + signal.SIGKILL)
    assert "ended together with the process that guards" in watched.line(0, STDERR)
    assert still_there([pid]) == []
    watched.start(1, "sleep 1000")
    assert watched.event() == WorkerExited("here", 1, 128 + signal.SIGKILL)


KILLED_WHILE_STARTING = """
import os, signal, sys, threading, time
from horovod.runner.host_runner import WorkerSpec
from horovod.runner.local_host import LocalHost

def attempt(delay):
    first = threading.Event()
    host = LocalHost("here", lambda *a: first.set(), lambda event: None)
    host.open()
    def shoot():
        first.wait()
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Thread(target=shoot).start()
    for worker in range(50):
        host.start(WorkerSpec(worker, ["sh", "-c", "echo; exec sleep 1000"], dict(os.environ)))
    time.sleep(1000)

for number in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        attempt(number * 0.0005)
    os.waitpid(pid, 0)
"""


def with_variable(variable):
    """Processes that have this in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found += [int(pid)] if variable.encode() in file.read().split(b"\0") else []
        except OSError:
            pass  # ended meanwhile
    return found


def test_kill_9_of_the_launcher_while_it_starts_workers_leaves_nobody():
    """Aimed: thirty launchers, each killed half a millisecond later after its first worker than the last."""
    env = environment(MARK=f"starting {os.getpid()}")
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_STARTING, "30"], env=env, timeout=240, check=False
    )
    assert done.returncode == 0
    until(lambda: not with_variable(f"MARK={env['MARK']}"), "nobody is left")


def test_a_fork_of_the_launcher_that_lives_on_does_not_keep_the_workers():
    """multiprocessing forks a user's program; its copy of the socket must not look like a living launcher."""
    code = (
        "import os, signal, threading\n"
        "from horovod.runner.host_runner import WorkerSpec\n"
        "from horovod.runner.local_host import LocalHost\n"
        "runs = threading.Event()\n"
        "def printed(worker, channel, data): os.write(1, data); runs.set()\n"
        "host = LocalHost('here', printed, lambda event: None)\n"
        "host.open(); host.start(WorkerSpec(0, ['sh', '-c', 'echo $$; exec sleep 1000'], dict(os.environ)))\n"
        "runs.wait()\n"
        "if os.fork() == 0: os.close(1); os.close(2); os.read(0, 1); os._exit(0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    stays, leaves = os.pipe()  # the fork lives as long as the second is open
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment(), stdin=stays, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert still_there([int(done.stdout)]) == []
    finally:
        os.close(stays)
        os.close(leaves)


def test_a_guard_that_is_alone_ends_its_workers_gently_first():
    ours, theirs = guard.socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, str(os.getpid())],
            stdin=theirs,
            preexec_fn=default_signals,
        )
    out, write_end = os.pipe()
    command = [
        b"sh",
        b"-c",
        b"exec 2>&-; trap 'echo asked; exit' TERM; echo here; while :; do sleep 0.05; done",
    ]
    env = {os.fsencode(k): os.fsencode(v) for k, v in environment().items()}
    message = guard.pack((guard.START, 0, command, env, b"/"))
    guard.socket.send_fds(ours, [message], [write_end, write_end])
    os.close(write_end)
    with os.fdopen(out) as reader:
        assert reader.readline() == "here\n"
        ours.close()
        assert reader.readline() == "asked\n"
    assert process.wait(60) == 0


def test_too_many_workers_are_refused_with_the_limit(monkeypatch):
    check_room(1)
    limits = {resource.RLIMIT_NOFILE: 1024, resource.RLIMIT_NPROC: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits[which], limits[which]))
    check_room(480)
    for workers, files in ((481, False), (300, True)):
        with pytest.raises(
            ValueError, match=rf"{workers} processes on this host need .*limit is 1024 \(ulimit -n\)"
        ):
            check_room(workers, files)
    limits[resource.RLIMIT_NPROC] = 100
    with pytest.raises(ValueError, match=r"need 101 processes, but the limit is 100 \(ulimit -u\)"):
        check_room(101)
