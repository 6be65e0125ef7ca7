# SPDX-License-Identifier: Apache-2.0
"""Small C libraries that stand in for others in tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(path: Path, text: str, *flags: str) -> str:
    """Makes a shared library of C code; returns its path. The test is skipped where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = path.with_suffix(".c")
    source.write_text(text)
    subprocess.run([compiler, "-shared", "-fPIC", *flags, "-o", str(path), str(source)], check=True)
    return str(path)
