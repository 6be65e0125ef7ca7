# SPDX-License-Identifier: Apache-2.0
"""scripts/run_tests.py, which `make test` calls, leaves no folder of tests out."""

from __future__ import annotations

import importlib.util
import os

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
