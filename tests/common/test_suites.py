# SPDX-License-Identifier: Apache-2.0
"""scripts/run_tests.py, which `make test` calls: no folder is left out, no failure is passed over."""

from __future__ import annotations

import importlib.util
import os
import sys
from concurrent.futures import Future

import pytest
from world import ROOT


def load():
    spec = importlib.util.spec_from_file_location("run_tests", os.path.join(ROOT, "scripts", "run_tests.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_folder_of_tests_is_in_a_suite():
    folder = os.path.join(ROOT, "tests")
    with_tests = {
        f"tests/{name}"
        for name in os.listdir(folder)
        if os.path.isdir(os.path.join(folder, name))
        and any(file.startswith("test_") for file in os.listdir(os.path.join(folder, name)))
    }
    run = {path for suite in load().SUITES for path in suite.tests}
    assert with_tests and with_tests <= run


def test_what_the_suites_name_exists():
    missing = [p for suite in load().SUITES for p in suite.tests if not os.path.exists(os.path.join(ROOT, p))]
    assert missing == []


FLAKY = """
import os
import pathlib

MARK = pathlib.Path(__file__).with_suffix(".ran")

def test_twice():
    ran, _ = MARK.exists(), MARK.touch()
    assert ran
"""


@pytest.mark.parametrize(
    "line, code", [("", 1), ("2999-01-01 {test}  a reason", 0), ("2001-01-01 {test}  old", 1)]
)
def test_a_test_that_needs_a_second_try_fails_the_run_unless_excused(
    line, code, tmp_path, monkeypatch, capsys
):
    run_tests = load()
    flaky = tmp_path / "tests" / "test_flaky.py"
    flaky.parent.mkdir()
    flaky.write_text(FLAKY)
    excused = tmp_path / "excused.txt"
    excused.write_text("# comment\n" + line.format(test="tests/test_flaky.py::test_twice") + "\n")
    suite = run_tests.Suite("flaky", ["tests/test_flaky.py"])
    environment = tmp_path / ".venv" / "bin"
    environment.mkdir(parents=True)
    (environment / "python").symlink_to(sys.executable)
    for name, value in {
        "SUITES": [suite],
        "ROOT": str(tmp_path),
        "LOGS": str(tmp_path),
        "EXCUSED": str(excused),
    }.items():
        monkeypatch.setattr(run_tests, name, value)
    monkeypatch.setattr(sys, "argv", ["run_tests.py"])
    assert run_tests.main() == code
    printed = capsys.readouterr().out
    assert "unsteady, passed when run again" in printed
    assert ("excused: a reason" in printed) == (code == 0)


def test_an_excuse_needs_a_date_and_a_reason():
    run_tests = load()
    with pytest.raises(ValueError, match="unsteady_tests.txt:1"):
        run_tests.excuses("tests/a.py::test_b because", "2026-01-01")
    with open(run_tests.EXCUSED) as file:
        assert len(run_tests.excuses(file.read(), "2026-01-01")) < 5


def test_suites_start_when_their_environment_is_there_and_the_others_do_not_wait():
    run_tests = load()
    suites = [run_tests.Suite(name, [], environment) for name, environment in ("as", "bt", "ct", "dt")]
    ready = {environment: Future() for environment in "st"}
    ready["t"].set_result(True)
    started = []

    def work(suite):
        started.append(suite.name)
        if suite.name == "d":
            ready["s"].set_result(True)
        return {"passed": len(started)}

    found = run_tests.run_when_ready(suites, 1, ready, work)
    assert started == ["b", "c", "d", "a"]
    assert found == {"a": {"passed": 4}, "b": {"passed": 1}, "c": {"passed": 2}, "d": {"passed": 3}}


def test_an_environment_that_cannot_be_installed_fails_its_suites_and_is_shown(tmp_path, monkeypatch, capsys):
    run_tests = load()
    (tmp_path / "Makefile").write_text(".venv-x/.ready:\n\t@echo no such wheel; exit 1\n")
    (tmp_path / "excused.txt").touch()
    for name, value in {
        "SUITES": [run_tests.Suite("x", ["tests/x"], ".venv-x")],
        "ROOT": str(tmp_path),
        "LOGS": str(tmp_path),
        "EXCUSED": str(tmp_path / "excused.txt"),
    }.items():
        monkeypatch.setattr(run_tests, name, value)
    monkeypatch.setattr(sys, "argv", ["run_tests.py"])
    assert run_tests.main() == 1
    printed = capsys.readouterr().out
    assert ".venv-x: cannot be installed" in printed and "no such wheel" in printed
    assert "0 passed, 1 failed" in printed
