#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes an old PyTorch that was built for CUDA importable without CUDA, for tests on the CPU.

.venv-torch-old/bin/python scripts/stand_in_cuda.py

Its wheels on PyPI are linked against two gigabytes of NVIDIA's libraries, of which nothing is called on a
machine without a GPU. This puts empty libraries of the same names beside torch's own, with every symbol that
torch wants to find in them. What does run when torch is loaded, libcudart and NVTX, is one megabyte and comes
from PyPI.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from typing import Dict, Set

REAL = ("libcudart.so", "libnvToolsExt.so")
NVIDIA = re.compile(r"lib(cu(?!da\.)|nv|nccl)")  # not the driver: it is loaded only where there is one
UNVERSIONED = re.compile(r"(cu|nv|nccl)[a-zA-Z]")


def output_of(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def wanted(folder: str) -> Dict[str, Set[str]]:
    """The symbols that torch's libraries expect of each library that is not there."""
    ours = [name for name in os.listdir(folder) if ".so" in name]
    missing: Dict[str, Set[str]] = {}
    unversioned: Set[str] = set()
    for name in ours:
        path = os.path.join(folder, name)
        for needed in re.findall(r"NEEDED.*\[(.*)\]", output_of("readelf", "-d", path)):
            if NVIDIA.match(needed) and needed not in ours and not needed.startswith(REAL):
                missing.setdefault(needed, set())
    for name in ours:
        for symbol in re.findall(r" U (\S+)", output_of("nm", "-D", os.path.join(folder, name))):
            base, _, library = symbol.partition("@")
            if library in missing:
                missing[library].add(base)
            elif not library and UNVERSIONED.match(base):
                unversioned.add(base)
    for symbols in missing.values():  # some libraries' symbols name no library: offered by all
        symbols |= unversioned
    return missing


def build(library: str, symbols: Set[str], folder: str) -> None:
    """One empty library; a call of one of its functions fails."""
    lines = [f"int {symbol}(void) {{ return 999; }}" for symbol in sorted(symbols)]
    with tempfile.TemporaryDirectory() as work:
        source, versions = os.path.join(work, "empty.c"), os.path.join(work, "versions")
        with open(source, "w") as file:
            file.write("\n".join(lines) + "\n")
        with open(versions, "w") as file:
            file.write(f"{library} {{ global: *; }};\n")
        target = os.path.join(folder, library)
        flags = ["-shared", "-fPIC", "-w", f"-Wl,-soname,{library}", f"-Wl,--version-script,{versions}"]
        subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", target, source], check=True)


def main() -> int:
    """Serves the environment whose Python runs this."""
    folder = os.path.join(sysconfig.get_path("purelib"), "torch", "lib")
    for library, symbols in sorted(wanted(folder).items()):
        build(library, symbols, folder)
        print(f"stand_in_cuda: {library} with {len(symbols)} symbols")
    return 0


if __name__ == "__main__":
    sys.exit(main())
