#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that includes between the rooms of csrc/ point one way.

    scripts/check_includes.py [csrc folder]

A room may include itself, the rooms named beside it here, and the C header. The rows stand in the order of
the picture in docs/architecture.md: what is further down may know what is further up, never the reverse.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Set

MAY_INCLUDE: Dict[str, Set[str]] = {
    "include": set(),  # the contract
    "util": set(),
    "world": {"util"},
    "control": {"util", "world"},  # pure: no socket, no thread, no memory of others
    "host": {"util", "control"},
    "net": {"util", "world", "control"},
    "watch": {"util", "world", "control", "net"},
    "paths/kernels": set(),
    "paths": {"util", "world", "control"},
    "paths/host": {"util", "world", "control", "host", "net", "paths", "paths/kernels"},
    "paths/cuda": {"util", "world", "control", "paths", "paths/host"},
    "engine": {"util", "world", "control", "host", "net", "watch", "paths", "paths/host", "paths/cuda"},
    "glue/jax": set(),  # frameworks' calling conventions over the C header, and nothing else
    "glue/mxnet": set(),
    "glue/tensorflow": set(),
}
# Headers of the system that have no business in a pure room.
IMPURE = re.compile(
    r"<(sys/|net|poll\.h|unistd\.h|fcntl\.h|thread>|mutex>|condition_variable>|fstream>|dlfcn\.h)"
)
PURE_ROOMS = {"world", "control"}

_INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"(?P<own>[^"]+)"|(?P<system><[^>]+>))', re.MULTILINE)


def room_of(path: str) -> str:
    """The room a path below csrc/ belongs to: the longest one that is a folder above it, or ""."""
    above = [room for room in MAY_INCLUDE if path.startswith(room + "/")]
    return max(above, key=len) if above else ""


def problems(root: Path) -> Iterator[str]:
    """One line for each include that points the wrong way."""
    for source in sorted([*root.rglob("*.h"), *root.rglob("*.cc")]):
        name = source.relative_to(root).as_posix()
        if name.startswith("tests/"):
            continue
        room = room_of(name)
        if not room:
            yield f"{name}: not in a room that scripts/check_includes.py knows"
            continue
        text = source.read_text()
        for match in _INCLUDE.finditer(text):
            line = text[: match.start("own" if match["own"] else "system")].count("\n") + 1
            own, system = match["own"], match["system"]
            if system and room in PURE_ROOMS and IMPURE.match(system):
                yield f"{name}:{line}: {room} is pure and must not include {system}"
            if not own or own == "horovod/core.h":
                continue
            beside = "/" not in own and (source.parent / own).exists()
            there = room if beside else room_of(own)
            if there != room and there not in MAY_INCLUDE[room]:
                yield f"{name}:{line}: {room} must not include {own}"


def main(arguments: List[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent / "csrc"
    found = list(problems(root))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
