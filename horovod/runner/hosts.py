# SPDX-License-Identifier: Apache-2.0
"""Hosts and slots as users write them: `-H a:2,b:2` or a host file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Tuple

_ENTRY = re.compile(r"^(?P<host>\[[0-9a-fA-F:.%\w]+\]|[\w.-]+):(?P<slots>[0-9]+)$")


@dataclass(frozen=True)
class HostInfo:
    """A host and how many ranks it may run."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(text: str) -> HostInfo:
        """Parses "node7:4" (or "[fe80::1]:4")."""
        match = _ENTRY.match(text.strip())
        if match is None:
            raise ValueError(
                "Invalid host input, please make sure it has format as : worker-0:2,worker-1:2."
                + (f" (The entry {text.strip()!r} has no ':slots'.)" if ":" not in text else "")
            )
        return HostInfo(match["host"].strip("[]"), int(match["slots"]))


def parse_hosts(hosts: str) -> List[HostInfo]:
    """Parses the argument of -H, e.g. "worker-0:2,worker-1:2"."""
    infos = [HostInfo.from_string(entry) for entry in hosts.split(",")]
    names = [info.hostname for info in infos]
    for name in names:
        if names.count(name) > 1:
            total = sum(info.slots for info in infos if info.hostname == name)
            raise ValueError(
                f"Host {name} is listed {names.count(name)} times; list it once, e.g. {name}:{total}"
            )
    return infos


def parse_hosts_and_slots(hosts: str) -> Tuple[List[str], Dict[str, int]]:
    """The host names in order, and the slots of each."""
    infos = parse_hosts(hosts)
    return [info.hostname for info in infos], {info.hostname: info.slots for info in infos}


def parse_host_files(path: str) -> str:
    """Reads a host file ("worker-0 slots=2" per line; '#' starts a comment) into the format of -H."""
    entries = []
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                words = line.split("#", 1)[0].split()
                if words:
                    entries.append(_host_file_entry(words, f"{path}:{number}"))
    except OSError as error:
        raise ValueError(f"Cannot read the host file {path}: {error.strerror}") from error
    if not entries:
        raise ValueError(f"The host file {path} lists no hosts; write lines such as 'worker-0 slots=2'")
    return ",".join(entries)


def _host_file_entry(words: List[str], where: str) -> str:
    host, slots = words[0], None
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key in ("slots", "max_slots", "max-slots") and value.isdigit():
            slots = value if key == "slots" else slots
        else:
            raise ValueError(f"{where}: do not understand {word!r}; write 'hostname slots=N'")
    if slots is None and ":" in host:  # MPICH's spelling, "worker-0:2"
        return host
    return f"{host}:{slots or 1}"
