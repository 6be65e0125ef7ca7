# SPDX-License-Identifier: Apache-2.0
"""What is run over ssh, and what failures are said to mean."""

from __future__ import annotations

import sys

import pytest

from horovod.runner import ssh


def test_the_ssh_command(monkeypatch):
    monkeypatch.delenv(ssh.KUBEXEC_VARIABLE, raising=False)
    argv = ssh.remote_command("node7", "echo hi", 2222, "key", 10)
    assert argv[0] == "ssh" and argv[-2:] == ["node7", "echo hi"]
    text = " ".join(argv)
    for part in ("-p 2222", "-i key", "-o ConnectTimeout=10", "-o PasswordAuthentication=no",
                 "-o ServerAliveInterval=10", "-o ServerAliveCountMax=3"):  # fmt: skip
        assert part in text
    short = " ".join(ssh.remote_command("node7", "x"))
    assert "-p" not in short and "-i " not in short and "ConnectTimeout" not in short


@pytest.mark.parametrize("seconds, interval", [(30, 10), (100, 34), (1, 1), (0.2, 1)])
def test_ssh_endures_silence_as_long_as_everybody_else(monkeypatch, seconds, interval):
    monkeypatch.delenv(ssh.KUBEXEC_VARIABLE, raising=False)
    argv = ssh.remote_command("node7", "x", network_timeout=seconds)
    assert f"ServerAliveInterval={interval}" in argv and "ServerAliveCountMax=3" in argv


@pytest.mark.parametrize(
    "users, ours",
    [("ask", ["accept-new"]), ("false", ["accept-new"]), ("accept-new", ["accept-new"]), ("true", [])],
)
def test_host_keys_are_checked_at_least_as_strictly_as_the_user_does(monkeypatch, users, ours):
    monkeypatch.delenv(ssh.KUBEXEC_VARIABLE, raising=False)
    monkeypatch.setattr(ssh, "configuration", lambda host: {"stricthostkeychecking": users})
    given = [word.split("=")[1] for word in ssh.remote_command("node7", "x") if "StrictHostKey" in word]
    assert given == ours


def test_the_users_configuration_is_asked(tmp_path, monkeypatch):
    (tmp_path / "ssh").write_text(
        "#!/bin/sh\n[ $1 = -G ] && printf 'hostname 10.0.0.7\\nport 2200\\nuser %s\\n' $2\n"
    )
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    ssh.configuration.cache_clear()
    assert ssh.configuration("alias") == {"hostname": "10.0.0.7", "port": "2200", "user": "alias"}
    assert ssh.real_name("alias") == "10.0.0.7"
    ssh.configuration.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    assert ssh.real_name("alias") == "alias"
    ssh.configuration.cache_clear()


def test_kubeflow_has_its_own_way(monkeypatch):
    monkeypatch.setenv(ssh.KUBEXEC_VARIABLE, ssh.KUBEXEC)
    assert ssh.remote_command("pod", "x y", 22) == ["/etc/mpi/kubexec.sh", "pod", "x y"]


def test_the_agent_is_started_with_the_same_python_and_path(tmp_path, monkeypatch):
    folder = tmp_path / "with space"
    folder.mkdir()
    monkeypatch.chdir(folder)
    text = ssh.python_command(
        "horovod.runner.agent", {"PYTHONPATH": "/a b:/c", "_HOROVOD_SECRET_KEY": "s3cret"}
    )
    assert (
        text
        == f"cd '{folder}' > /dev/null 2>&1 ; PYTHONPATH='/a b:/c' {sys.executable} -m horovod.runner.agent"
    )
    assert "s3cret" not in text


MEANINGS = [
    (255, "root@b: Permission denied (publickey).", "no key of yours is accepted there"),
    (255, "ssh: connect to host b port 22: Connection refused", "no sshd listens there"),
    (255, "ssh: connect to host b port 22: Connection timed out", "a firewall drop"),
    (255, "ssh: connect to host b port 22: No route to host", "the host is down"),
    (255, "ssh: Could not resolve hostname b", "the name is unknown"),
    (
        255,
        "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
        "ssh-keygen -R node7",
    ),
    (
        255,
        "No ED25519 host key is known for b and you have requested strict checking.\nHost key "
        "verification failed.",
        "log in once by hand with ssh node7",
    ),
    (255, "Host key verification failed.", "unknown or has changed"),
    (255, 'command-line line 0: unsupported option "accept-new".', "OpenSSH 7.6"),
    (1, "/usr/bin/python: No module named horovod", "install the same version on every host"),
    (127, "bash: /opt/python: not found", "use the same environment path on every host"),
    (127, "", "must exist on every host"),
    (5, "", "ssh ended with status 5"),
]


@pytest.mark.parametrize("code, text, hint", MEANINGS)
def test_failures_are_explained(code, text, hint):
    said = ssh.explain(code, text, host="node7")
    assert hint in said and said.startswith(text)


def test_a_connection_that_broke_later_is_told_apart():
    assert "the host went down or its network was cut" in ssh.explain(255, "", reached=True)
