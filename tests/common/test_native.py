# SPDX-License-Identifier: Apache-2.0
"""The ctypes declarations against the C header itself."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess

import pytest
from world import ROOT

from horovod.common import _native, constants

HEADER = os.path.join(ROOT, "csrc", "include", "horovod", "core.h")


def header():
    with open(HEADER) as file:
        return file.read()


def test_every_function_of_the_header_is_declared():
    functions = set(re.findall(r"HVD_API\s+[\w\s*]+?(hvd_\w+)\s*\(", header()))
    assert functions == set(_native._FUNCTIONS)


def test_constants_equal_the_headers():
    values = {name: int(value) for name, value in re.findall(r"HVD_(\w+) = (-?\d+)", header())}
    assert len(values) > 30
    reductions = {"AVERAGE": "Average", "SUM": "Sum", "ADASUM": "Adasum", "MIN": "Min", "MAX": "Max",
                  "PRODUCT": "Product"}  # fmt: skip
    for name, value in values.items():
        assert getattr(constants, reductions.get(name, name)) == value, name


def test_sizes_and_names_of_types_line_up():
    assert len(constants.DTYPE_NAME) == len(constants.DTYPE_SIZE) == 13
    assert constants.DTYPE_NAME[constants.BFLOAT16] == "bfloat16"
    assert constants.DTYPE_SIZE[constants.INT64] == 8


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ to read the header")
def test_structures_have_the_headers_layout(tmp_path):
    structures = {"hvd_world": _native.World, "hvd_link": _native.Link, "hvd_request": _native.Request,
                  "hvd_output": _native.Output}  # fmt: skip
    lines = []
    for name, structure in structures.items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        for field, _ in structure._fields_:
            lines.append(f'printf("%zu\\n", offsetof({name}, {field}));')
    source = tmp_path / "layout.cc"
    source.write_text(
        "#include <cstddef>\n#include <cstdio>\n#include <horovod/core.h>\nint main() {"
        + "".join(lines)
        + "}"
    )
    program = tmp_path / "layout"
    subprocess.run(["g++", f"-I{ROOT}/csrc/include", str(source), "-o", str(program)], check=True)
    printed = iter(int(line) for line in subprocess.check_output([str(program)], text=True).split())
    for structure in structures.values():
        assert ctypes.sizeof(structure) == next(printed), structure
        for field, _ in structure._fields_:
            assert getattr(structure, field).offset == next(printed), f"{structure}.{field}"


def test_a_missing_library_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(_native, "_library", None)
    monkeypatch.setenv("HOROVOD_CORE_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(ImportError, match="make build"):
        _native.lib()
