# SPDX-License-Identifier: Apache-2.0
"""horovodrun on one machine, from the outside."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys

import pytest
from launching import (
    HOROVODRUN,
    REPORT,
    environment,
    horovodrun,
    reports,
    start_horovodrun,
    still_there,
)

_RANKS = ["RANK", "LOCAL_RANK", "CROSS_RANK"]
SHOW = "echo " + " ".join(f"$HOROVOD_{name}/$HOROVOD_{name.replace('RANK', 'SIZE')}" for name in _RANKS)


def test_ranks_and_their_variables():
    done = horovodrun("-np", "3", "-H", "localhost:2,127.0.0.1:4", "sh", "-c", SHOW)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[0]<stdout>:0/3 0/2 0/2", "[1]<stdout>:1/3 1/2 0/1", "[2]<stdout>:2/3 0/1 1/2",
    ]  # fmt: skip
    assert done.stderr == ""


def test_arguments_and_environment_arrive_unchanged():
    words = ["a b", "$HOME", "'\"", "*", "--np", "ä€"]
    code = "import os,sys; print(sys.argv[1:], os.environ['MINE'], os.environ['HOROVOD_CYCLE_TIME'])"
    done = horovodrun(
        "-np", "1", "--cycle-time-ms", "3", sys.executable, "-c", code, *words, env=environment(MINE="x y")
    )
    assert done.stdout == f"[0]<stdout>:{words} x y 3.0\n", done.stderr


@pytest.mark.parametrize("words, expected", [((), "ib0"), (("--network-interfaces", "lo"), "lo")])
def test_interfaces_given_win_over_those_of_the_environment(words, expected):
    env = environment(NCCL_SOCKET_IFNAME="ib0")
    done = horovodrun("-np", "1", *words, "printenv", "NCCL_SOCKET_IFNAME", env=env)
    assert done.stdout == f"[0]<stdout>:{expected}\n", done.stderr


def test_settings_reach_the_workers_and_secrets_do_not_show():
    show = "for pid in $PPID $(ps -o ppid= -p $PPID); do tr '\\0' ' ' </proc/$pid/cmdline; done; env"
    done = horovodrun("-np", "1", "--timeline-filename", "t", "--verbose", "sh", "-c", show)
    secret = [line for line in done.stdout.splitlines() if "_HOROVOD_SECRET_KEY=" in line]
    assert len(secret) == 1
    assert secret[0].split("=", 1)[1] not in done.stdout.replace(secret[0], "") + done.stderr
    assert "HOROVOD_TIMELINE=t" in done.stdout and "PYTHONUNBUFFERED=1" in done.stdout
    assert "workers meet at 127.0.0.1" in done.stderr


def test_a_world_of_ranks():
    done = horovodrun("-np", "2", sys.executable, REPORT, "--rounds", "2")
    assert done.returncode == 0, done.stderr
    assert [(r["round"], r["rank"], r["size"], r["launcher"]) for r in reports(done.stdout)] == [
        (0, 0, 2, "horovodrun"), (0, 1, 2, "horovodrun"), (1, 0, 2, "horovodrun"), (1, 1, 2, "horovodrun"),
    ]  # fmt: skip


def test_rank_lists_make_worlds_of_their_own():
    done = horovodrun("-np", "4", sys.executable, REPORT, "--comm", "list")
    assert done.returncode == 0, done.stderr
    assert [(r["rank"], r["size"]) for r in reports(done.stdout)] == [(0, 2), (0, 2), (1, 2), (1, 2)]


def test_the_first_failure_is_reported_and_the_others_are_ended(tmp_path):
    script = (
        "echo pid $$; touch $HOROVOD_RANK; if [ $HOROVOD_RANK = 1 ]; then "
        "until [ -e 0 ] && [ -e 2 ]; do sleep 0.05; done; echo reason >&2; exit 7; fi; sleep 1000"
    )
    done = horovodrun("-np", "3", "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 1
    assert "The first process to do so was:\nProcess name: 1\nExit code: 7\nHost: localhost\n" in done.stderr
    assert "Last lines of its output:\n    reason" in done.stderr
    pids = [int(line.split()[-1]) for line in done.stdout.splitlines() if "pid" in line]
    assert len(pids) == 3 and still_there(pids) == []


def test_the_cause_is_named_not_its_echo():
    done = horovodrun("-np", "3", sys.executable, REPORT, "--crash", "2", "--sleep", "30")
    assert done.returncode == 1
    assert "Process name: 2\nExit code: 1" in done.stderr and "crashed on purpose" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_death_by_signal_is_named(number):
    done = horovodrun("-np", "2", "sh", "-c", f"[ $HOROVOD_RANK = 0 ] && kill -{int(number)} $$; sleep 1000")
    assert f"Exit code: {128 + number} (ended by {number.name})" in done.stderr


STUBBORN = (
    "import signal,subprocess,sys,time,os\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "child = subprocess.Popen(['sleep', '1000'])\n"
    "print(os.getpid(), child.pid, flush=True)\n"
    "time.sleep(1000)\n"
)


OBEDIENT = STUBBORN.replace("SIG_IGN", "SIG_DFL")


@pytest.mark.parametrize(
    "number, script",
    [
        (signal.SIGINT, STUBBORN),
        (signal.SIGTERM, OBEDIENT),
        (signal.SIGHUP, OBEDIENT),
        (signal.SIGKILL, STUBBORN),
    ],
    ids=["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"],
)
def test_a_signal_to_the_launcher_ends_everything(number, script):
    """Even workers that ignore SIGTERM, even their children, even when the launcher itself is killed."""
    process = start_horovodrun("-np", "2", sys.executable, "-c", script)
    lines = [process.stdout.readline() for _ in range(2)]
    pids = [int(word) for line in lines for word in line.split(":")[1].split()]
    assert len(pids) == 4
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (-9 if number == signal.SIGKILL else 128 + number)
    assert still_there(pids) == []


def test_what_cannot_be_started_is_named():
    done = horovodrun("-np", "2", "no-such-program")
    assert done.returncode == 1
    assert "Exit code: 127" in done.stderr and "cannot start 'no-such-program'" in done.stderr


WRONG = [
    (["-np", "3", "-H", "localhost:2", "true"],
     "Requested more processes (3) than there are available slots (2)"),
    (["-np", "2", "-H", "localhost", "true"], "Invalid host input"),
    (["-np", "2", "-H", "a:1,a:1", "true"], "Host a is listed 2 times"),
    (["-np", "2"], "no command to run"),
    (["-np", "2", "--min-np", "3", "true"], "--min-np 3 must be at least 1 and at most -np 2"),
    (["-np", "2", "--max-np", "1", "--min-np", "1", "true"], "--max-np 1 must be at least -np 2"),
    (["-np", "2", "--min-np", "1", "--mpi", "true"], "leave --mpi and --jsrun out"),
    (["-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0", "9", "true"],
     "Provided cooldown lower limit: 0 cannot be lower"),
    (["-np", "2", "--host-discovery-script", "exit 3", "true"],
     "Failed to execute discovery script: exit 3. Exit code: 3"),
    (["-np", "2", "--jsrun", "true"], "did not detect an LSF job"),
    (["-np", "1", "-H", "no-such-host.invalid:1", "true"], "Cannot resolve host no-such-host.invalid"),
    (["-np", "1", "-H", "198.51.100.7:1", "--network-interfaces", "nope0", "true"],
     "interface nope0 does not exist"),
    (["-np", "2", "--cache-capacity=-1", "true"], "cache_capacity=-1 must be >= 0"),
    (["-np", "2", "--output-filename", "/dev/null/x", "true"], "cannot write to --output-filename /dev/null"),
    (["-np", "100000000", "true"], "100000000 processes on this host need"),
    (["-np", "1000000", "true"], "1000000 processes on this host need"),
]  # fmt: skip


@pytest.mark.parametrize("words, message", WRONG, ids=[row[1] for row in WRONG])
def test_mistakes_are_named_without_a_traceback(words, message):
    done = horovodrun(*words)
    assert done.returncode == 1
    assert message in done.stderr and "Traceback" not in done.stderr and done.stdout == ""


def test_text_for_a_number_in_the_config_file_is_named(tmp_path):
    path = tmp_path / "config.yaml"
    for text in ("many", "[1]"):
        path.write_text(f"params: {{cache_capacity: {text}}}\n")
        done = horovodrun("-np", "2", "--config-file", str(path), "true")
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert (
            f"--config-file {path}: params.cache_capacity=" in done.stderr
            and "is not a whole number" in done.stderr
        )


def test_a_deleted_working_directory_is_named(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *HOROVODRUN, "-np", "2", "true"],
        cwd=folder, env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("horovodrun: the working directory does not exist any more")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root")
def test_a_loopback_interface_without_ipv4_is_enough():
    alone = 'ip link set lo up && ip addr del 127.0.0.1/8 dev lo && exec "$@"'
    for hosts in ("localhost:2", "localhost:1,[::1]:1"):
        words = ["-np", "2", "-H", hosts, "--verbose", sys.executable, REPORT]
        done = subprocess.run(
            ["unshare", "--net", "sh", "-c", alone, "sh", *HOROVODRUN, *words],
            env=environment(), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "workers meet at ::1" in done.stderr
        assert [(r["rank"], r["size"]) for r in reports(done.stdout)] == [(0, 2), (1, 2)]


def test_ranks_hear_at_once_that_one_ended_before_it_joined(tmp_path):
    """Rank 1 ends before hvd.init(), in which rank 0 would wait for half a minute."""
    script = (
        "import os, signal, sys, time\n"
        "if os.environ['HOROVOD_RANK'] == '1':\n"
        "    while not os.path.exists('ready'): time.sleep(0.02)\n"
        "    sys.exit('no data for me')\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"  # its launcher ends it a moment after rank 1's end
        "import horovod.numpy as hvd\n"
        "open('ready', 'w').close()\n"
        "hvd.init()\n"
    )
    done = horovodrun("-np", "2", sys.executable, "-c", script, cwd=tmp_path)
    assert done.returncode == 1
    told = "rank 1 on localhost ended with exit code 1 before it joined the job; its last line: no data"
    heard = [line for line in done.stderr.splitlines() if line.startswith("[0]<stderr>:") and told in line]
    assert heard, done.stderr
    assert "Process name: 1\nExit code: 1" in done.stderr


def test_version_and_check_build():
    import horovod

    assert horovodrun("--version").stdout.strip() == horovod.__version__
    done = horovodrun("--check-build")
    assert done.returncode == 0
    for line in (
        f"Horovod v{horovod.__version__}:",
        "Available Frameworks:",
        "    [X] NumPy",
        "    [X] Gloo",
    ):
        assert line in done.stdout.splitlines()
    assert "    Engine library: " in done.stdout and "MISSING" not in done.stdout


def test_the_self_test():
    done = horovodrun("--check", "-np", "2")
    assert done.returncode == 0, done.stderr
    expected = ["2 ranks on 1 host, found by horovodrun", "shared memory within a host", "advice:"]
    for text in [*expected, "allreduce of 4 bytes", "allreduce of 16 MiB", "all results are right"]:
        assert text in done.stdout


def test_much_output_arrives_complete_in_bounded_memory(tmp_path):
    """40 MB from two ranks, through a reader that is in no hurry."""
    code = "import os,sys\nline='x'*99+'\\n'\nfor i in range(200): sys.stdout.write(line*1000)\n"
    # Asked by a small process: the peak of a new one begins with that of the one it was forked from.
    ask = (
        "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr); sys.exit(code)"
    )
    command = [sys.executable, "-c", ask, *HOROVODRUN, "-np", "2", sys.executable, "-c", code]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        total = 0
        while data := process.stdout.read(1 << 16):
            total += data.count(b"\n")
        peak_kib = int(process.stderr.read())
    assert process.returncode == 0 and total == 2 * 200 * 1000
    assert peak_kib < 120 * 1024, "the launcher's memory grew with the output"


def test_output_files_and_timestamps(tmp_path):
    words = ["-np", "2", "--output-filename", str(tmp_path / "o"), "-prefix-timestamp"]
    done = horovodrun(*words, "sh", "-c", "echo out; echo err >&2")
    assert done.returncode == 0
    for rank in range(2):
        for name in ("stdout", "stderr"):
            text = (tmp_path / "o" / f"rank.{rank}" / name).read_text()
            assert text.endswith(f"[{rank}]<{name}>:{name[3:]}\n") and len(text) > 30
            assert text in (done.stdout if name == "stdout" else done.stderr)


def test_a_child_that_keeps_the_output_open_does_not_keep_the_job():
    done = horovodrun("-np", "1", "sh", "-c", "sleep 1000 & echo $!; exit 0")
    assert done.returncode == 0
    os.kill(int(done.stdout.split(":")[1]), signal.SIGKILL)


def test_sixty_four_ranks_start_and_stop():
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 512:
        pytest.skip(f"the limit of {soft} open files is too low for 64 ranks (ulimit -n)")
    code = (
        "import horovod.common.basics as b, horovod.common.objects as o\n"
        "b.basics.init(); print('sum', sum(o.allgather_object(b.basics.rank()))); b.basics.shutdown()\n"
    )
    done = horovodrun("-np", "64", "--gloo-timeout-seconds", "240", sys.executable, "-c", code, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(int(line[1:].split("]")[0]) for line in done.stdout.splitlines()) == list(range(64))
    assert {line.split(":")[1] for line in done.stdout.splitlines()} == {f"sum {64 * 63 // 2}"}
