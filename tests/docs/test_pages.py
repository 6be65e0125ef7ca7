# SPDX-License-Identifier: Apache-2.0
"""The documentation is true: its code runs, its commands parse, its messages are in the sources."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest
from world import ROOT, worker_env

DOCS = os.path.join(ROOT, "docs")
# Pages whose Python is run by the tests of their front end.
ELSEWHERE = {"pytorch.md", "tensorflow.md", "keras.md", "jax.md", "mxnet.md", "ray.md", "data.md", "spark.md",
             "data_service.md"}  # fmt: skip
# Pages of Python that is an outline ("..."), parsed only.
OUTLINES = {"running.md"}
LAUNCH = """
import sys, horovod
horovod.run(exec, (sys.argv[1], {"__name__": "__main__"}), np=int(sys.argv[2]))
"""


def read(name, folder=DOCS):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def pages():
    names = [name for name in os.listdir(DOCS) if name.endswith(".md")]
    return sorted([*names, *(f"api/{name}" for name in os.listdir(os.path.join(DOCS, "api")))])


def blocks(text, language):
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def python_pages():
    return [name for name in pages() if blocks(read(name), "python")]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", [n for n in python_pages() if n not in ELSEWHERE | OUTLINES])
def test_python_runs(name, size):
    """All blocks of a page, one after the other."""
    code = "\n".join(blocks(read(name), "python"))
    if "import torch" in code:
        pytest.importorskip("torch", reason=f"torch is not installed in {sys.prefix}")
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, code, str(size)],
        env=worker_env(), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


@pytest.mark.parametrize("name", sorted(OUTLINES | (ELSEWHERE & set(pages()))))
def test_other_python_parses(name):
    for code in blocks(read(name), "python"):
        compile(code, name, "exec")


def test_the_front_ends_run_their_pages():
    text = ""
    for folder, _, files in os.walk(os.path.join(ROOT, "tests")):
        if os.path.basename(folder) != "docs":
            text += "".join(read(name, folder) for name in files if name.endswith(".py"))
    for name in ELSEWHERE & set(pages()):
        assert f"docs/{name}" in text or name in text, f"nobody runs the code of docs/{name}"


def commands():
    """Every command line that starts with horovodrun, in shell and plain blocks."""
    for name in [*pages(), "../README.md"]:
        text = read(name)
        for block in [*blocks(text, "sh"), *blocks(text, "shell"), *blocks(text, "")]:
            for line in block.replace("\\\n", " ").splitlines():
                line = line.split(" # ")[0].strip().lstrip("$ ")
                if line.startswith("horovodrun"):
                    yield name, line


def test_commands_are_understood():
    """The real parser takes them, and finds the command to run in them."""
    from horovod.runner.flags import parse

    seen = list(commands())
    assert len(seen) >= 12
    for name, line in seen:
        words = [word for word in shlex.split(line)[1:] if word != "..."]
        try:
            args = parse(words)
        except SystemExit as error:
            raise AssertionError(f"{name}: {line}") from error
        is_complete = args.command or args.check_build or args.check or args.report or args.stacks is not None
        assert is_complete, f"{name}: {line}"


# ------------------------------------------------------------------------------------ error messages --


def sources():
    """All string literals of the sources, as they read when the program runs."""
    text = ""
    for top in ("horovod", "csrc", "scripts"):
        for folder, _, files in os.walk(os.path.join(ROOT, top)):
            if "tests" in folder or "__pycache__" in folder:
                continue
            for name in files:
                if name.endswith((".py", ".cc", ".h", ".sh")):
                    text += read(name, folder) + "\n"
    text = re.sub(r'"\s*(?:<<\s*)?\n?\s*f?"', "", text)  # adjacent literals are one
    return re.sub(r"\s+", " ", text).replace('\\"', '"')


def listed_messages():
    rows = re.findall(r"^\| `([^`]+)` \|", read("troubleshooting.md"), re.MULTILINE)
    assert len(rows) > 50
    return rows


def test_every_error_listed_exists():
    text = sources()
    missing = []
    for message in listed_messages():
        for fragment in message.split("…"):
            fragment = fragment.strip(" ,;:()")
            if len(fragment) >= 4 and fragment not in text:
                missing.append(f"{message}: {fragment!r}")
    assert not missing, "\n".join(missing)


# ------------------------------------------------------------------------------------ generated pages --


@pytest.mark.parametrize("script", ["generate_settings.py", "draw_concepts.py", "generate_api.py"])
def test_generated_files_are_current(script):
    done = subprocess.run(
        [sys.executable, os.path.join(ROOT, "scripts", script), "--check"],
        env=worker_env({"TF_CPP_MIN_LOG_LEVEL": "3"}), capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_tests_named_by_the_pages_exist():
    """Security and README name tests: they must be there."""
    for text in (read("security.md"), read("README.md", ROOT)):
        for name in re.findall(r"\b(test_\w+)\b(?!\.py)", text):
            search = ["grep", "-rlE", f"def {name}\\(", os.path.join(ROOT, "tests")]
            found = subprocess.run(search, capture_output=True, text=True)
            assert found.stdout.strip(), f"there is no test {name}"


def test_links_between_pages_exist():
    """Also without MkDocs: every relative link of every page and of the README leads to a file."""
    for name in [*pages(), "../README.md", "../CONTRIBUTING.md", "../examples/README.md"]:
        base = os.path.dirname(os.path.join(DOCS, name))
        text = re.sub(r"^```.*?^```", "", read(name), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target:
                assert os.path.exists(os.path.join(base, target)), f"{name}: {target}"
