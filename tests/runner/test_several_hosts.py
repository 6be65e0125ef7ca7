# SPDX-License-Identifier: Apache-2.0
"""horovodrun and horovod.run over ssh, on two hosts made of network namespaces with a real sshd each."""

from __future__ import annotations

import json
import re
import sys
import time

import pytest
from hosts_in_namespaces import hosts_fixture, make_key
from launching import HOROVODRUN, REPORT, reports
from mpi_environments import MpiEnvironment
from waiting import until

hosts = hosts_fixture("a", "b")


def horovodrun(hosts, *words, **options):
    return hosts.run([*HOROVODRUN, *words], **options)


SHOW = (
    "echo $HOROVOD_RANK $HOROVOD_HOSTNAME $MINE $(ip -4 -o addr show eth0 | tr -s ' ' | cut -d' ' -f4); "
    "cat /proc/$(ps -o ppid= -p $PPID | tr -d ' ')/cmdline | tr '\\0' ' '; echo"  # its guard's parent
)


def test_ranks_are_placed_and_the_environment_follows(hosts):
    done = horovodrun(hosts, "-np", "4", "-H", "a:2,b:2", "--verbose", "sh", "-c", SHOW, env={"MINE": "x$y"})
    assert done.returncode == 0, done.stderr
    seen = sorted(line.split(":", 1)[1] for line in done.stdout.splitlines() if "x$y" in line)
    assert seen == [
        f"0 a x$y {hosts.address['a']}/24", f"1 a x$y {hosts.address['a']}/24",
        f"2 b x$y {hosts.address['b']}/24", f"3 b x$y {hosts.address['b']}/24",
    ]  # fmt: skip
    agents = [line for line in done.stdout.splitlines() if "horovod.runner.agent" in line]
    assert len(agents) == 4 and all("SECRET" not in line for line in agents)
    reason = f"a reaches the launcher at {hosts.launcher}: it is this machine's address on the route to a"
    assert reason in done.stderr
    assert "host b is ready" in done.stderr


@pytest.mark.parametrize("inside", [None, "a"], ids=["launched elsewhere", "launched on one of them"])
def test_a_world_on_two_hosts(hosts, inside):
    first = hosts.address["a"] if inside else "a"
    words = ["-np", "4", "-H", f"{first}:2,b:2", sys.executable, REPORT, "--rounds", "2"]
    done = horovodrun(hosts, *words, inside=inside)
    assert done.returncode == 0, done.stderr + done.stdout
    keys = ("rank", "local_rank", "local_size", "cross_rank", "cross_size")
    expected = [(0, 0, 2, 0, 2), (1, 1, 2, 0, 2), (2, 0, 2, 1, 2), (3, 1, 2, 1, 2)]
    assert [tuple(one[key] for key in keys) for one in reports(done.stdout)] == expected * 2


def test_an_interface_can_be_asked_for(hosts):
    first = hosts.address["a"]
    words = ["-np", "2", "-H", f"{first}:1,b:1", "--network-interfaces", "eth0", "--verbose"]
    done = horovodrun(hosts, *words, sys.executable, REPORT, inside="a")
    assert done.returncode == 0, done.stderr
    assert f"b reaches the launcher at {first}: interface eth0 was asked for" in done.stderr
    assert [(r["rank"], r["cross_size"]) for r in reports(done.stdout)] == [(0, 2), (1, 2)]


def test_hosts_of_different_size(hosts):
    done = horovodrun(hosts, "-np", "3", "-H", "a:1,b:2", sys.executable, REPORT)
    assert done.returncode == 0, done.stderr
    assert [(r["rank"], r["local_size"], r["cross_size"]) for r in reports(done.stdout)] == [
        (0, 1, 2), (1, 2, 2), (2, 2, 1),
    ]  # fmt: skip


def test_the_self_test_names_the_network(hosts):
    done = horovodrun(hosts, "--check", "-np", "2", "-H", "a:1,b:1")
    assert done.returncode == 0, done.stderr
    assert "2 ranks on 2 hosts" in done.stdout and "TCP between hosts" in done.stdout
    for name in "ab":
        assert f"host {name}: ranks {'ab'.index(name)}; address {hosts.address[name]}" in done.stdout


def test_horovod_run_over_ssh(hosts):
    code = (
        "import horovod, json, os\n"
        "def work(x):\n"
        "    if x and os.environ['HOROVOD_RANK'] == '1': raise KeyError('far away')\n"
        "    return os.environ['HOROVOD_HOSTNAME'] + os.environ['HOROVOD_RANK']\n"
        "print(json.dumps(horovod.run(work, (0,), np=2, hosts='a:1,b:1')))\n"
        "try: horovod.run(work, (1,), np=2, hosts='a:1,b:1')\n"
        "except KeyError as error: print('cause', 'rank 1 on host b' in str(error.__cause__))\n"
    )
    done = hosts.run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0]) == ["a0", "b1"]
    assert "cause True" in done.stdout


def test_a_failure_far_away_ends_everything(hosts):
    script = "[ $HOROVOD_RANK = 3 ] && { echo reason >&2; exit 9; }; sleep 1000"
    done = horovodrun(hosts, "-np", "4", "-H", "a:2,b:2", "sh", "-c", script)
    assert done.returncode == 1
    assert "Process name: 3\nExit code: 9\nHost: b\nLast lines of its output:\n    reason" in done.stderr
    wait_until_nothing_is_left(hosts)


def wait_until_nothing_is_left(hosts, names="ab"):
    until(lambda: not any(hosts.pids(name) for name in names), f"no worker is left on {names}")


def start_busy_job(hosts, **options):
    """A job whose ranks reduce all the time; returns when all of them do."""
    words = ["-np", "4", "-H", "a:2,b:2", sys.executable, REPORT, "--sleep", "1000"]
    process = hosts.popen([*HOROVODRUN, *words], **options)
    for _ in range(4):
        assert '"rank"' in process.stdout.readline()
    return process


def test_a_dead_launcher_ends_all_hosts(hosts):
    process = start_busy_job(hosts)
    process.kill()
    process.communicate(timeout=60)
    wait_until_nothing_is_left(hosts)


def test_a_killed_host_ends_the_job(hosts):
    process = start_busy_job(hosts)
    hosts.kill_everything("b")
    _, errors = process.communicate(timeout=60)
    hosts.start_sshd("b")
    assert process.returncode == 1
    assert "Lost host b (ranks 2-3): " in errors and "the connection broke: the host went down" in errors
    wait_until_nothing_is_left(hosts)


def test_a_long_outage_ends_the_job_on_both_sides_and_is_named(hosts):
    process = start_busy_job(hosts, env={"HOROVOD_NETWORK_TIMEOUT_SECONDS": "3"})
    hosts.cut("b")
    try:
        _, errors = process.communicate(timeout=90)
        assert process.returncode == 1
        # Seen as silence, or as an error of the connection: whichever comes first.
        said = r"no word from host b for \d+ s: its network|the connection broke: .* network was cut"
        assert re.search(rf"Lost host b \(ranks 2-3\): ({said})", errors), errors
        assert "Process name" not in errors
        wait_until_nothing_is_left(hosts, "a")
        wait_until_nothing_is_left(hosts)  # b notices by itself that nobody is there any more
    finally:
        hosts.mend("b")
        hosts.start_sshd("b")


UNTIL_TOLD = """
import os, sys
import numpy as np
import horovod.numpy as hvd
hvd.init()
print("reducing", flush=True)
while not hvd.allreduce(np.array([os.path.exists(sys.argv[1])], np.int32), op=hvd.Max, name="told")[0]:
    pass
"""


def test_a_short_outage_is_survived(hosts, tmp_path):
    """Seven seconds without network, in the middle of reductions."""
    told = tmp_path / "told"
    words = ["-np", "2", "-H", "a:1,b:1", sys.executable, "-c", UNTIL_TOLD, str(told)]
    process = hosts.popen([*HOROVODRUN, *words])
    for _ in range(2):
        assert "reducing" in process.stdout.readline()
    hosts.cut("b")
    try:
        time.sleep(7)
    finally:
        hosts.mend("b")
    told.write_text("enough")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


# --------------------------------------------------------------------------------------- host keys --


class Keys:
    """An ssh configuration of a user who keeps the hosts' keys, and says how strictly they are checked."""

    def __init__(self, hosts, folder, strict):
        folder.mkdir(exist_ok=True)
        self.known = folder / "known_hosts"
        self.config = folder / "ssh_config"
        lines = [f"UserKnownHostsFile {self.known}", f"StrictHostKeyChecking {strict}"]
        self.config.write_text("\n".join([*lines, f"Include {hosts.folder}/ssh_config", ""]))
        self.env = {"SSH_CONFIG": str(self.config)}


def test_an_impostor_of_a_known_host_gets_nothing(hosts, tmp_path):
    """At the address of host b answers somebody with another key, who takes down what he is sent."""
    settings = [Keys(hosts, tmp_path / strict, strict) for strict in ("ask", "no", "yes", "accept-new")]
    for keys in settings:
        first = [
            "/usr/bin/ssh",
            "-F",
            str(keys.config),
            "-o",
            "StrictHostKeyChecking=accept-new",
            "b",
            "true",
        ]
        assert hosts.run(first).returncode == 0
    taken, key = tmp_path / "taken", tmp_path / "other_key"
    make_key(str(key))
    hosts.start_sshd("b", "-o", f"HostKey={key}", "-o", f"ForceCommand=cat >> {taken}")
    try:
        hosts.run(["sh", "-c", "echo careless | ssh b"])
        assert taken.read_text() == "careless\n", "the impostor does not work"
        for keys in settings:
            env = {**keys.env, "CLOUD_KEY": "do not tell"}
            done = horovodrun(hosts, "-np", "1", "-H", "b:1", "true", env=env)
            assert done.returncode == 1
            for text in ("its host key is not the one you know", "Nothing was sent", "ssh-keygen -R b"):
                assert text in done.stderr, done.stderr
        assert taken.read_text() == "careless\n"
    finally:
        hosts.start_sshd("b")


@pytest.mark.parametrize("strict", ["ask", "no", "yes"])
def test_new_hosts_are_accepted_unless_the_user_wants_to_know_them(hosts, tmp_path, strict):
    keys = Keys(hosts, tmp_path, strict)
    done = horovodrun(hosts, "-np", "1", "-H", "b:1", "true", env=keys.env)
    assert done.returncode == (1 if strict == "yes" else 0), done.stderr
    assert keys.known.exists() is (strict != "yes")
    assert ("your ssh configuration wants host keys to be known" in done.stderr) is (strict == "yes")


WRONG = [
    (["-H", "a:1,{network}.99:1"], "Could not start workers on host {network}.99", "the host is down"),
    (["-H", "a:1,b:1", "-p", "2222"], "Could not start workers on host", "give its port with -p"),
    (["-H", "a:1,c:1"], "Cannot resolve host c", "~/.ssh/config"),
]


@pytest.mark.parametrize("words, what, hint", WRONG, ids=[row[2] for row in WRONG])
def test_unreachable_hosts_are_named_with_a_hint(hosts, words, what, hint):
    words = [word.format(network=hosts.network) for word in words]
    done = horovodrun(hosts, "-np", "2", "--start-timeout", "60", *words, "sleep", "1000")
    assert done.returncode == 1
    assert what.format(network=hosts.network) in done.stderr and hint in done.stderr, done.stderr
    wait_until_nothing_is_left(hosts)


def test_a_refused_key_is_named(hosts, tmp_path):
    make_key(str(tmp_path / "other"))
    with open(f"{hosts.folder}/authorized_keys", encoding="utf-8") as file:
        before = file.read()
    with open(f"{hosts.folder}/authorized_keys", "w", encoding="utf-8") as file:
        file.write((tmp_path / "other.pub").read_text())
    try:
        done = horovodrun(hosts, "-np", "1", "-H", "b:1", "true")
    finally:
        with open(f"{hosts.folder}/authorized_keys", "w", encoding="utf-8") as file:
            file.write(before)
    assert done.returncode == 1 and "no key of yours is accepted there" in done.stderr


def test_login_scripts_that_print_do_no_harm(hosts):
    """The agent's messages start at a marker, whatever a shell's start-up files print before."""
    with open(f"{hosts.folder}/bin/ssh", encoding="utf-8") as file:
        before = file.read()
    with open(f"{hosts.folder}/bin/ssh", "w", encoding="utf-8") as file:
        file.write(before.replace("exec", "echo Welcome to the cluster; echo quota 93%; exec"))
    try:
        done = horovodrun(hosts, "-np", "1", "-H", "b:1", "echo", "hi")
    finally:
        with open(f"{hosts.folder}/bin/ssh", "w", encoding="utf-8") as file:
            file.write(before)
    assert done.returncode == 0 and done.stdout == "[0]<stdout>:hi\n", done.stderr


@pytest.mark.parametrize("name, operations", [("openmpi", "gloo"), ("openmpi", "mpi"), ("mpich", "mpi")])
def test_mpirun_over_ssh(hosts, name, operations):
    """A real mpirun from one host to the other; the ranks' data over sockets and over MPI."""
    mpi = MpiEnvironment(name)
    reason = mpi.prepare()
    if reason is not None:
        pytest.skip(reason)
    a, b = hosts.address["a"], hosts.address["b"]
    where = (
        ["--prefix", mpi.folder, "-H", f"{a}:2,{b}:2"]
        if name == "openmpi"
        else ["-ppn", "2", "-hosts", f"{a},{b}"]
    )
    passed = ["-x", "PYTHONPATH", "-x", "HOROVOD_CPU_OPERATIONS"] if name == "openmpi" else []
    env = {key: value for key, value in mpi.environment().items() if key.startswith("OMPI_ALLOW")}
    command = [mpi.mpirun, "-np", "4", *where, *passed, mpi.python, REPORT]
    done = hosts.run(command, inside="a", env={**env, "HOROVOD_CPU_OPERATIONS": operations})
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(r["rank"], r["local_rank"], r["cross_rank"], r["mpi"]) for r in reports(done.stdout)] == [
        (0, 0, 0, True), (1, 1, 0, True), (2, 0, 1, True), (3, 1, 1, True),
    ]  # fmt: skip
