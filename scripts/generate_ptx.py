#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles csrc/paths/cuda/kernels.cu to PTX text, one file an element type.

    scripts/generate_ptx.py            writes csrc/paths/cuda/ptx/*.ptx; needs nvcc
    scripts/generate_ptx.py --check    fails if they are not what nvcc makes of the source; without nvcc
                                       or with another release of it, says so and passes

The text is declared as PTX 6.3 for sm_70, which every driver since CUDA 10 compiles for every GPU since
Volta. nvcc itself writes the newest version of PTX it knows and no target below sm_75: the two lines at the
top and hints of newer versions are rewritten, and ptxas confirms that nothing else is newer.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "csrc/paths/cuda/kernels.cu"
FOLDER = ROOT / "csrc/paths/cuda/ptx"
ELEMENTS = ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "bf16", "f32", "f64")
VERSION, TARGET = "6.3", "sm_70"
CHECKED_WITH = ("sm_75", "sm_80", "sm_90", "sm_100")  # ptxas may know fewer


def compile_ptx(element: str, folder: Path) -> str:
    """The text of one module."""
    raw = folder / f"{element}.ptx"
    # No fused multiply-add: results have the bits of the host's kernels.
    subprocess.run(
        ["nvcc", "-O3", "-std=c++17", "-fmad=false", "-ptx", "-arch=compute_75", "-diag-suppress=177"]
        + [
            f"-I{ROOT / 'csrc'}",
            f"-DHVD_ELEMENT={element}",
            f"-DHVD_IS_{element}",
            str(SOURCE),
            "-o",
            str(raw),
        ],
        check=True,
    )
    text = raw.read_text()
    text = re.sub(r"^//.*\n", "", text, flags=re.MULTILINE).lstrip()  # names the compiler's build
    text = re.sub(r"^\.version .*$", f".version {VERSION}", text, flags=re.MULTILINE)
    text = re.sub(r"^\.target .*$", f".target {TARGET}", text, flags=re.MULTILINE)
    # Names without linkage hold a number made of where this checkout lies.
    text = re.sub(r"(_INTERNAL_|_GLOBAL__N__)[0-9a-f]{8}_", r"\g<1>00000000_", text)
    text = re.sub(r'^.*\.pragma "used_bytes_mask.*\n', "", text, flags=re.MULTILINE)
    return f"// Generated from kernels.cu by scripts/generate_ptx.py with nvcc {nvcc_release()}.\n{text}"


def nvcc_release() -> str:
    """E.g. 13.0."""
    text = subprocess.run(["nvcc", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"release ([0-9.]+)", text)
    return found.group(1) if found else "unknown"


def assemble(text: str, folder: Path) -> None:
    """Fails if ptxas does not accept the text for a GPU it knows."""
    path = folder / "assembled.ptx"
    path.write_text(text)
    for chip in CHECKED_WITH:
        done = subprocess.run(
            ["ptxas", f"-arch={chip}", str(path), "-o", "/dev/null"], capture_output=True, text=True
        )
        if done.returncode and "not defined for option" not in done.stderr:
            sys.exit(f"ptxas for {chip}: {done.stderr}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    if not shutil.which("nvcc"):
        print("generate_ptx: no nvcc on this machine", file=sys.stderr)
        return 0 if check else 1
    stale = []
    with tempfile.TemporaryDirectory() as folder:
        for element in ELEMENTS:
            path = FOLDER / f"{element}.ptx"
            text = compile_ptx(element, Path(folder))
            if check and path.exists() and path.read_text().partition("\n")[0] != text.partition("\n")[0]:
                print(f"generate_ptx: {path.name} was made by another nvcc; not compared", file=sys.stderr)
                continue
            if check and (not path.exists() or path.read_text() != text):
                stale.append(path.name)
            if not check:
                assemble(text, Path(folder))
                FOLDER.mkdir(exist_ok=True)
                path.write_text(text)
    if stale:
        print(f"generate_ptx: run scripts/generate_ptx.py; stale: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
