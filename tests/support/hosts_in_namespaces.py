# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one machine: a network namespace each, joined by a bridge, with an sshd of its own.

    with Hosts(["a", "b"]) as hosts:
        hosts.run(["horovodrun", "-np", "4", "-H", "a:2,b:2", ...])       # from the machine itself
        hosts.run([...], inside="a")                                       # from host a
        hosts.cut("b")                                                     # pulls b's cable

The keys, the ssh configuration and the wrapper that makes plain `ssh` use it live in a temporary folder. The
variable SSH_CONFIG makes the wrapper use another configuration, as a user's own would be.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from typing import Any, Dict, Iterator, List, Optional

import pytest
from waiting import until

_SSHD = shutil.which("sshd") or "/usr/sbin/sshd"


def why_not() -> Optional[str]:
    """Why such hosts cannot be made here, or None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "ssh", "ssh-keygen", _SSHD):
        if shutil.which(program) is None:
            return f"{program} is not installed (scripts/setup-system.sh installs it)"
    probe = subprocess.run(["ip", "netns", "add", f"hvdprobe{os.getpid()}"], capture_output=True, text=True)
    if probe.returncode != 0:
        return f"ip netns add: {probe.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", f"hvdprobe{os.getpid()}"], check=False)
    return None


def hosts_fixture(*names: str) -> Any:
    """A fixture for a module's tests, skipped where it must be: `hosts = hosts_fixture("a", "b")`."""

    @pytest.fixture(scope="module")
    def hosts() -> Iterator[Hosts]:
        reason = why_not()
        if reason is not None:
            pytest.skip(f"no hosts for ssh: {reason}")
        with Hosts(list(names)) as made:
            yield made

    return hosts


def make_key(path: str) -> None:
    """A key without a passphrase, and path.pub."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _make_bridge() -> int:
    """A number that nobody else has: of two runs of the tests only one can make the bridge hvdbr4711."""
    for number in range(os.getpid(), os.getpid() + 10000):
        tag = number % 10000
        words = ["ip", "link", "add", f"hvdbr{tag}", "type", "bridge"]
        made = subprocess.run(words, capture_output=True, text=True, check=False)
        if made.returncode == 0:
            return tag
        if "exists" not in made.stderr:
            break
    raise RuntimeError(f"{' '.join(words)}: {made.stderr}")


class Hosts:
    """The hosts, from entering the context until leaving it."""

    def __init__(self, names: List[str]) -> None:
        self.names = names
        self.folder = tempfile.mkdtemp(prefix="hvdhosts")
        self._daemons: Dict[str, subprocess.Popen[bytes]] = {}
        # A network of its own, so that two runs of the tests do not meet.
        tag = _make_bridge()
        self._bridge = f"hvdbr{tag}"
        self._space = {name: f"hvd{tag}{name}" for name in names}
        self.network = f"10.{200 + tag // 250}.{tag % 250}"
        self.launcher = f"{self.network}.1"
        self.address = {name: f"{self.network}.{index + 2}" for index, name in enumerate(names)}

    def __enter__(self) -> Hosts:
        try:
            self._make_network()
            self._make_keys()
            for name in self.names:
                self.start_sshd(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for daemon in self._daemons.values():
            daemon.kill()
            daemon.wait()
        for name in self.names:
            self.kill_everything(name)
            self._remove(name)
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self) -> Dict[str, str]:
        """An environment whose ssh reaches the hosts."""
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        return dict(os.environ, PATH=f"{self.folder}/bin:{os.environ['PATH']}", PYTHONPATH=root)

    def popen(
        self, command: List[str], inside: Optional[str] = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Starts a command on the machine, or inside one of the hosts."""
        prefix = self.enter(inside) if inside else []
        environment = {**self.environment(), **options.pop("env", {})}
        return subprocess.Popen(
            prefix + command, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
        )  # fmt: skip

    def run(
        self, command: List[str], inside: Optional[str] = None, timeout: float = 90, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        process = self.popen(command, inside, **options)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=60)
            raise AssertionError(f"did not end within {timeout} s\n{out}\n{err}") from None
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def _everybody(self, name: str) -> List[int]:
        words = ["ip", "netns", "pids", self._space[name]]
        listed = subprocess.run(words, capture_output=True, text=True, check=False)
        return [int(pid) for pid in listed.stdout.split()]

    def pids(self, name: str) -> List[int]:
        """Processes on a host, its sshd aside."""
        found = []
        for pid in self._everybody(name):
            try:
                with open(f"/proc/{pid}/comm", encoding="utf-8") as comm:
                    if comm.read().strip() != "sshd":
                        found.append(pid)
            except OSError:
                pass
        return found

    def kill_everything(self, name: str) -> None:
        """What a power cut does to the processes of a host (its sshd included)."""

        def nobody_is_left() -> bool:
            # All stop before the first dies: none may tell of another's death.
            everybody = self._everybody(name)
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in everybody:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            return not everybody

        until(nobody_is_left, f"all processes on {name} are dead")

    def cut(self, name: str) -> None:
        """Pulls the cable of a host."""
        _ip("link", "set", f"v{self._space[name]}", "down")

    def mend(self, name: str) -> None:
        """Plugs it in again."""
        _ip("link", "set", f"v{self._space[name]}", "up")

    def start_sshd(self, name: str, *options: str) -> None:
        """Starts (again) the sshd of a host, e.g. with "-o", "ForceCommand=cat"."""
        old = self._daemons.pop(name, None)
        if old is not None:
            old.kill()
            old.wait()
        self._daemons[name] = subprocess.Popen(
            [*self.enter(name), _SSHD, "-D", "-f", f"{self.folder}/sshd_config", *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        probe = [f"{self.folder}/bin/ssh", "-o", "ConnectTimeout=5", name, "true"]
        until(
            lambda: subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0,
            f"the sshd of host {name} answers",
        )

    # ------------------------------------------------------------------------------------- private

    def enter(self, name: str) -> List[str]:
        """The start of a command that runs on a host: in its network, under its name."""
        named = f'hostname {name}; exec "$@"'
        return ["ip", "netns", "exec", self._space[name], "unshare", "--uts", "sh", "-c", named, "sh"]

    def _make_network(self) -> None:
        _ip("addr", "add", f"{self.launcher}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for name, space in self._space.items():
            self._remove(name)  # what a run that was killed has left
            _ip("netns", "add", space)
            _ip("link", "add", f"v{space}", "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", f"v{space}", "master", self._bridge, "up")
            _ip("-n", space, "addr", "add", f"{self.address[name]}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")

    def _remove(self, name: str) -> None:
        """Takes a host's network away; its link by name, as the kernel clears namespaces some time later."""
        for words in (["link", "del", f"v{self._space[name]}"], ["netns", "del", self._space[name]]):
            subprocess.run(["ip", *words], check=False, capture_output=True)

    def _make_keys(self) -> None:
        os.makedirs(f"{self.folder}/bin")
        os.makedirs("/run/sshd", exist_ok=True)
        for key in ("host_key", "user_key"):
            make_key(f"{self.folder}/{key}")
        shutil.copy(f"{self.folder}/user_key.pub", f"{self.folder}/authorized_keys")
        os.chmod(f"{self.folder}/authorized_keys", 0o600)
        with open(f"{self.folder}/sshd_config", "w", encoding="utf-8") as file:
            file.write(
                f"Port 22\nHostKey {self.folder}/host_key\nAuthorizedKeysFile {self.folder}/authorized_keys\n"
                "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\nPidFile none\n"
                "MaxStartups 100\n"
            )
        with open(f"{self.folder}/ssh_config", "w", encoding="utf-8") as file:
            for name in self.names:
                file.write(f"Host {name}\n  HostName {self.address[name]}\n")
            file.write(
                f"Host *\n  User root\n  IdentityFile {self.folder}/user_key\n  IdentitiesOnly yes\n"
                "  UserKnownHostsFile /dev/null\n  StrictHostKeyChecking no\n  LogLevel ERROR\n"
            )
        with open(f"{self.folder}/bin/ssh", "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec /usr/bin/ssh -F "${{SSH_CONFIG:-{self.folder}/ssh_config}}" "$@"\n')
        os.chmod(f"{self.folder}/bin/ssh", 0o755)
