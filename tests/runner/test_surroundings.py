# SPDX-License-Identifier: Apache-2.0
"""horovodrun where things go wrong around it: no room, no terminal, nobody who reads, odd signals."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time

import pytest
from launching import (
    HOROVODRUN,
    alive,
    default_signals,
    descendants,
    environment,
    start_horovodrun,
    still_there,
)
from processes import is_frozen
from waiting import until

# More than the pipes in between hold: a rank stands still if nobody takes what it prints.
MUCH = "import sys; [print('x' * 99, file=f) for f in (sys.stdout, sys.stderr) for _ in range(3000)]; "
FULL = "cannot write to standard output: No space left on device. It is dropped there; the job goes on"


def shell(redirection, *words, **options):
    """horovodrun from a shell, with a redirection."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *HOROVODRUN, *words],
        env=environment(), capture_output=True, text=True, timeout=60, **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    "redirection, left, said",
    [
        (">/dev/full", "stderr", FULL),
        ("2>/dev/full", "stdout", FULL.replace("output", "error")),
        (">&-", "stderr", None),
        ("2>&-", "stdout", None),
        ("<&- >&- 2>&-", None, None),
        (">/dev/full 2>&1", None, None),
    ],
)
def test_a_job_goes_on_without_a_place_for_its_output(tmp_path, redirection, left, said):
    done = shell(redirection, "-np", "2", sys.executable, "-c", MUCH + f"open(r'{tmp_path}/' + "
                 "__import__('os').environ['HOROVOD_RANK'], 'w')")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path)) == ["0", "1"], "all ranks came to their end"
    lines = (done.stdout + done.stderr).splitlines()
    words = [line for line in lines if line.startswith("horovodrun: ")]
    assert words == ([f"horovodrun: {said}"] if said else [])
    assert len(lines) - len(words) == (6000 if left else 0)


def test_a_failure_without_a_place_for_its_output_is_still_a_failure():
    assert shell(">&- 2>&-", "-np", "2", "false").returncode == 1
    assert shell(">/dev/full 2>&1", "-np", "2", "false").returncode == 1


def test_what_horovodrun_itself_prints_may_fail_too():
    done = shell(">/dev/full", "--check-build")
    assert done.returncode == 1 and done.stderr.startswith("horovodrun: ")
    assert "No space left on device" in done.stderr and done.stderr.count("\n") == 1
    assert shell(">&-", "--check-build").stderr == ""


def test_a_full_disk_for_output_files_is_told_and_the_job_goes_on(tmp_path, tmp_path_factory):
    """In mid-training: the disk fills up, gets room again, and the files continue."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)])
    if mounted.returncode != 0:
        pytest.skip("no file system of its own")
    try:
        (tmp_path / "ballast").write_bytes(bytes(40 << 10))
        script = (
            "import os, sys, time\n"
            "for i in range(1000): print('x' * 99)\n"
            "print('full', file=sys.stderr, flush=True)\n"
            "while os.path.exists(sys.argv[1]): time.sleep(0.02)\n"
            "time.sleep(1.1)\n"  # it is tried once a second
            "print('at the end')\n"
        )
        words = ["-np", "1", "--output-filename", str(tmp_path / "o"), sys.executable, "-c", script]
        console = tmp_path_factory.mktemp("console") / "out"
        with open(console, "w") as out:
            job = start_horovodrun(*words, str(tmp_path / "ballast"), stdout=out)
        first = job.stderr.readline() + job.stderr.readline()
        assert f"horovodrun: cannot write to {tmp_path}/o/rank.0/stdout: No space left on device" in first
        until(lambda: console.read_text().count("\n") == 1000, "all that found no room was dropped")
        (tmp_path / "ballast").unlink()
        _, errors = job.communicate(timeout=60)
        assert job.returncode == 0, errors
        assert console.read_text().count("\n") == 1001, "the console misses nothing"
        assert f"horovodrun: there is room for {tmp_path}/o/rank.0/stdout again; " in errors
        *_, note, last = (tmp_path / "o" / "rank.0" / "stdout").read_text().splitlines()
        assert note.endswith("lines are missing here: there was no room") and last == "[0]<stdout>:at the end"
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


class Terminal:
    """A terminal of its own for a job, as a window has."""

    def __init__(self, *words, ignore_hangup=False):
        self.master, slave = pty.openpty()

        def prepare():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            default_signals()
            if ignore_hangup:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

        self.job = subprocess.Popen(
            [*HOROVODRUN, *words], stdin=slave, stdout=slave, stderr=slave, preexec_fn=prepare,
            env=environment(TERM="xterm"),
        )  # fmt: skip
        os.close(slave)

    def read_until(self, text):
        seen = ""
        while text not in seen:
            seen += os.read(self.master, 4096).decode()
        return seen


def test_a_closed_terminal_ends_the_job_with_129():
    window = Terminal("-np", "2", "sh", "-c", "echo pid $$.; sleep 1000")
    seen = ""
    while seen.count(".") < 2:
        seen += window.read_until(".")
    pids = [int(part.split(".")[0]) for part in seen.split("pid ")[1:]]
    os.close(window.master)
    assert window.job.wait(60) == 129 and still_there(pids) == []


def test_a_closed_terminal_with_the_hangup_ignored_does_not_stop_the_job(tmp_path):
    """nohup without a redirection: nobody sees the output any more, but training goes on."""
    script = f"echo here; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; seq 100000; seq 100000 >&2; "
    window = Terminal("-np", "2", "sh", "-c", script + f"touch {tmp_path}/$HOROVOD_RANK", ignore_hangup=True)
    window.read_until("here")
    os.close(window.master)
    (tmp_path / "go").touch()
    assert window.job.wait(60) == 0 and sorted(os.listdir(tmp_path)) == ["0", "1", "go"]


def test_a_progress_bar_on_a_terminal(tmp_path):
    bar = "import sys; [print(f'\\r{i}/4 |###', end='', file=sys.stderr) for i in range(5)]; sys.exit('')"
    window = Terminal(
        "-np", "1", sys.executable, "-c", bar.replace("; sys.exit('')", "; print(file=sys.stderr)")
    )
    seen = window.read_until("4/4 |###\r\n")
    assert window.job.wait(60) == 0
    assert seen.endswith("[0]<stderr>:\x1b[0m4/4 |###\r\n") and "\n" not in seen[:-1]
    os.close(window.master)


def test_signals_work_while_nobody_reads_the_output():
    """A terminal held by Ctrl-S, a pager on its first page: both streams are stuck."""
    read_end, write_end = os.pipe()
    script = "import os\nwhile True: os.write(1, b'x' * 99 + b'\\n'); os.write(2, b'y' * 99 + b'\\n')"
    job = start_horovodrun("-np", "2", sys.executable, "-c", script, stdout=write_end, stderr=write_end)
    # By its places: one that holds part of a page is taken too, so it may be full with far fewer bytes.
    until(lambda: not select.select([], [write_end], [], 0)[1], "the pipe is full")
    workers = [pid for pid in descendants(job.pid) if pid != job.pid]
    job.send_signal(signal.SIGTERM)
    assert job.wait(60) == 128 + signal.SIGTERM and still_there(workers) == []
    os.close(read_end)
    os.close(write_end)


@pytest.mark.parametrize("ignored", [[signal.SIGHUP], [signal.SIGINT, signal.SIGQUIT], list(range(1, 16))])
def test_a_launcher_in_the_background_ends_its_workers_on_sigterm(ignored):
    """nohup horovodrun ... &, a shell's background job, and a parent that ignores everything."""

    def ignore():
        for number in set(ignored) - {signal.SIGKILL}:
            signal.signal(number, signal.SIG_IGN)

    job = start_horovodrun("-np", "2", "sh", "-c", "echo $$; exec sleep 1000", preexec_fn=ignore)
    pids = [int(job.stdout.readline().split(":")[1]) for _ in range(2)]
    for number in (signal.SIGHUP, signal.SIGINT):
        if number in ignored:
            job.send_signal(number)
    time.sleep(0.2)
    assert all(map(alive, pids))
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert job.returncode == 128 + signal.SIGTERM and still_there(pids) == []


def test_a_launcher_that_is_stopped_hears_of_sigterm_when_it_goes_on():
    """Ctrl-Z, then `kill %1`: the kernel gives the signal to any thread, often not to the main one."""
    for _ in range(4):
        job = start_horovodrun("-np", "1", "sh", "-c", "echo $$; exec sleep 1000")
        pids = [int(job.stdout.readline().split(":")[1])]
        job.send_signal(signal.SIGSTOP)
        until(lambda job=job: is_frozen(job.pid), "the launcher is stopped")
        job.send_signal(signal.SIGTERM)
        job.send_signal(signal.SIGCONT)
        job.communicate(timeout=60)
        assert job.returncode == 128 + signal.SIGTERM and still_there(pids) == []


def test_a_reader_who_left_does_not_stop_the_job(tmp_path):
    done = subprocess.run(
        ["bash", "-c", '"$@" | head -1; exit ${PIPESTATUS[0]}', "bash", *HOROVODRUN,
         "-np", "1", sys.executable, "-c", MUCH + f"open(r'{tmp_path}/end', 'w')"],
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0 and (tmp_path / "end").exists() and done.stdout.count("\n") == 1
    assert "horovodrun: cannot write to standard output: Broken pipe" in done.stderr


def test_lines_of_ranks_do_not_mix_in_one_file():
    done = subprocess.run(
        [*HOROVODRUN, "-np", "3", "-H", "localhost:1,127.0.0.1:2", sys.executable, "-c", MUCH],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    expected = {f"[{rank}]<{name}>:{'x' * 99}" for rank in range(3) for name in ("stdout", "stderr")}
    lines = done.stdout.splitlines()
    assert len(lines) == 18_000 and set(lines) == expected
