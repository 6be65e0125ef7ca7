# SPDX-License-Identifier: Apache-2.0
"""Reaching other hosts with the user's own ssh and its configuration: the command, what its failures mean."""

from __future__ import annotations

import functools
import math
import os
import shlex
import subprocess
import sys
from typing import List, Mapping, Optional

# Kubeflow's MPI operator has no sshd in its pods; it offers this script with kubectl exec inside instead.
KUBEXEC_VARIABLE, KUBEXEC = "OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"
# Unanswered questions after which ssh hangs up.
_KEEPALIVES = 3


def remote_command(
    host: str,
    command: str,
    port: Optional[int] = None,
    identity_file: Optional[str] = None,
    connect_timeout: Optional[int] = None,
    network_timeout: float = 30.0,
) -> List[str]:
    """The local argv that runs a shell command on a host. Anybody can read it in ps: no secrets in here."""
    if os.environ.get(KUBEXEC_VARIABLE) == KUBEXEC:
        return [KUBEXEC, host, command]
    # BatchMode: no questions, which nobody would see.
    argv = ["ssh", "-o", "BatchMode=yes", "-o", "PasswordAuthentication=no", *host_key_options(host)]
    argv += ["-o", f"ServerAliveInterval={max(math.ceil(network_timeout / _KEEPALIVES), 1)}"]
    argv += ["-o", f"ServerAliveCountMax={_KEEPALIVES}", "-T"]
    argv += ["-p", str(port)] if port else []
    argv += ["-i", identity_file] if identity_file else []
    argv += ["-o", f"ConnectTimeout={connect_timeout}"] if connect_timeout else []
    return argv + [host, command]


def host_key_options(host: str) -> List[str]:
    """How host keys are checked: at least as strictly as the user says, and never a changed one accepted.

    The agent is told the job's secret and environment, so an impostor of a known host must not be reached.
    New hosts are accepted (clusters grow), unless the user's configuration wants all of them to be known.
    """
    strict = configuration(host).get("stricthostkeychecking", "ask")
    return [] if strict in ("yes", "true") else ["-o", "StrictHostKeyChecking=accept-new"]


@functools.cache
def configuration(host: str) -> Mapping[str, str]:
    """What the user's ssh configuration says about a host, e.g. {"hostname": "10.0.0.7", "port": "22"}."""
    try:
        found = subprocess.run(["ssh", "-G", host], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = [line.split(None, 1) for line in found.stdout.splitlines()]
    return {pair[0]: pair[1] for pair in reversed(pairs) if len(pair) == 2}


def real_name(host: str) -> str:
    """The name or address that ssh would connect to: an alias of ~/.ssh/config may be known to ssh only."""
    return configuration(host).get("hostname", host)


def python_command(module: str, env: Mapping[str, str]) -> str:
    """The shell command that runs a module of ours on another host with the same Python and path."""
    parts = ["cd", shlex.quote(os.getcwd()), ">", "/dev/null", "2>&1", ";"]
    path = env.get("PYTHONPATH")
    if path:
        parts += ["PYTHONPATH=" + shlex.quote(path)]
    return " ".join(parts + [shlex.quote(sys.executable), "-m", module])


# What ssh or the shell over there says, and what to do about it. The first that fits counts.
_HINTS = (
    ("permission denied", "no key of yours is accepted there: ssh-copy-id, or give the key with -i"),
    ("connection refused", "no sshd listens there: start it, or give its port with -p"),
    ("timed out", "the host does not answer: is it up, and does a firewall drop ssh?"),
    ("no route to host", "the host is down or its network is not routed from here"),
    ("could not resolve", "the name is unknown: check its spelling, DNS, /etc/hosts or ~/.ssh/config"),
    ("identification has changed",
     "its host key is not the one you know: the host was installed anew, or somebody pretends to be it. "
     "Nothing was sent to it. If it was installed anew: ssh-keygen -R {host}, and start the job again"),
    ("host key is known", "your ssh configuration wants host keys to be known (StrictHostKeyChecking): "
     "log in once by hand with ssh {host}, or add its key to known_hosts"),
    ("host key verification failed", "its host key is unknown or has changed: ssh {host} tells which"),
    ("unsupported option", "an ssh client of OpenSSH 7.6 or newer is needed"),
    ("no module named",
     "Horovod is not installed for that Python there: install the same version on every host"),
    ("not found", "that Python does not exist there: use the same environment path on every host"),
    ("no such file", "that Python does not exist there: use the same environment path on every host"),
)  # fmt: skip


def explain(code: int, text: str, reached: bool = False, host: str = "HOST") -> str:
    """What a failed ssh means and what to do about it."""
    last = text.strip()
    if reached and code in (255, -9):
        return f"{last}\n".lstrip() + "the connection broke: the host went down or its network was cut"
    for sign, hint in _HINTS:
        if sign in last.lower():
            return f"{last}\n({hint.format(host=host)})"
    if code == 127:
        return f"{last}\n(the same Python, {sys.executable}, must exist on every host)"
    return last or f"ssh ended with status {code}"
