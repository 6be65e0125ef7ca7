# SPDX-License-Identifier: Apache-2.0
"""Options and fixtures of all tests."""

from __future__ import annotations

import os
import signal
import sys
from typing import Generator

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
# pytest has put this folder there, where `import jax` would find our tests of it if it is not installed.
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
for path in (os.path.dirname(HERE), os.path.join(HERE, "support")):
    if path not in sys.path:
        sys.path.insert(0, path)

# `nohup make test &` leaves these ignored here and in all children; tests send them.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# A test that takes longer hangs. It fails then, with where it was, and its suite goes on.
TEST_LIMIT = 420.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run tests that take minutes or many GiB")


def pytest_collection_modifyitems(config: pytest.Config, items: list) -> None:
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    from time_limits import time_limit

    if "slow" in item.keywords:
        yield
        return
    with time_limit(TEST_LIMIT, item.name):
        yield


@pytest.fixture(scope="session", autouse=True)
def _end_worlds():
    yield
    from world import close_all

    close_all()
