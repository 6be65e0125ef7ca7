# SPDX-License-Identifier: Apache-2.0
"""scripts/check_includes.py: the rooms of csrc/ point one way, and a wrong include is found."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from world import ROOT

CHECK = os.path.join(ROOT, "scripts", "check_includes.py")


def check(folder):
    return subprocess.run(
        [sys.executable, CHECK, str(folder)], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_includes_of_the_engine_point_one_way():
    done = check(os.path.join(ROOT, "csrc"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "file, line",
    [
        ("control/aggregator.h", '#include "host/segment.h"'),
        ("control/coordinator.cc", "#include <sys/socket.h>"),
        ("world/topology.cc", "#include <thread>"),
        ("paths/data_path.h", '#include "engine/table.h"'),
        ("paths/kernels/body.h", '#include "util/log.h"'),
        ("util/fd.h", '#include "world/topology.h"'),
        ("glue/jax/collective.cc", '#include "engine/engine.h"'),
        ("host/lane.h", '  #  include "../engine/driver.h"'),
    ],
)
def test_a_planted_include_is_found(tmp_path, file, line):
    shutil.copytree(os.path.join(ROOT, "csrc"), tmp_path / "csrc")
    assert check(tmp_path / "csrc").returncode == 0
    with open(tmp_path / "csrc" / file, "a") as source:
        source.write(line + "\n")
    done = check(tmp_path / "csrc")
    assert done.returncode == 1
    assert done.stderr.startswith(file + ":") and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_file_outside_of_all_rooms_is_found(tmp_path):
    shutil.copytree(os.path.join(ROOT, "csrc"), tmp_path / "csrc")
    (tmp_path / "csrc" / "fabric").mkdir()
    (tmp_path / "csrc" / "fabric" / "new.cc").write_text("int x;\n")
    assert "fabric/new.cc: not in a room" in check(tmp_path / "csrc").stderr
