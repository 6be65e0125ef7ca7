# SPDX-License-Identifier: Apache-2.0
"""Reaching other hosts with the user's own ssh and its configuration."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import List, Mapping, Optional

# Kubeflow's MPI operator has no sshd in its pods; it offers this script with kubectl exec inside instead.
KUBEXEC_VARIABLE, KUBEXEC = "OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"


def remote_command(
    host: str,
    command: str,
    port: Optional[int] = None,
    identity_file: Optional[str] = None,
    connect_timeout: Optional[int] = None,
) -> List[str]:
    """The local argv that runs a shell command on a host. Anybody can read it in ps: no secrets in here."""
    if os.environ.get(KUBEXEC_VARIABLE) == KUBEXEC:
        return [KUBEXEC, host, command]
    # BatchMode (no questions) instead of a password prompt nobody sees; unknown hosts are accepted because
    # clusters are rebuilt, changed host keys are not.
    argv = ["ssh", "-o", "BatchMode=yes", "-o", "PasswordAuthentication=no", "-o", "StrictHostKeyChecking=no"]
    argv += ["-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=3", "-T"]
    argv += ["-p", str(port)] if port else []
    argv += ["-i", identity_file] if identity_file else []
    argv += ["-o", f"ConnectTimeout={connect_timeout}"] if connect_timeout else []
    return argv + [host, command]


def python_command(module: str, env: Mapping[str, str]) -> str:
    """The shell command that runs a module of ours on another host with the same Python and path."""
    parts = ["cd", shlex.quote(os.getcwd()), ">", "/dev/null", "2>&1", ";"]
    path = env.get("PYTHONPATH")
    if path:
        parts += ["PYTHONPATH=" + shlex.quote(path)]
    return " ".join(parts + [shlex.quote(sys.executable), "-m", module])


def real_name(host: str) -> str:
    """The name or address that ssh would connect to: an alias of ~/.ssh/config may be known to ssh only."""
    try:
        found = subprocess.run(["ssh", "-G", host], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return host
    for line in found.stdout.splitlines():
        if line.startswith("hostname "):
            return line.split(None, 1)[1]
    return host


def explain(code: int, text: str, reached: bool = False) -> str:
    """What a failed ssh means and what to do about it."""
    last = text.strip()
    if reached and code in (255, -9):
        return f"{last}\n".lstrip() + "the connection broke: the host went down or its network was cut"
    hints = (
        ("permission denied", "no key of yours is accepted there: ssh-copy-id, or give the key with -i"),
        ("connection refused", "no sshd listens there: start it, or give its port with -p"),
        ("timed out", "the host does not answer: is it up, and does a firewall drop ssh?"),
        ("no route to host", "the host is down or its network is not routed from here"),
        ("could not resolve", "the name is unknown: check its spelling, DNS, /etc/hosts or ~/.ssh/config"),
        ("host key verification failed", "its host key changed: if that was you, ssh-keygen -R <host>"),
        (
            "no module named",
            "Horovod is not installed for that Python there: install the same version on every host",
        ),
        ("not found", "that Python does not exist there: use the same environment path on every host"),
        ("no such file", "that Python does not exist there: use the same environment path on every host"),
    )
    for sign, hint in hints:
        if sign in last.lower():
            return f"{last}\n({hint})"
    if code == 127:
        return f"{last}\n(the same Python, {sys.executable}, must exist on every host)"
    return last or f"ssh ended with status {code}"
