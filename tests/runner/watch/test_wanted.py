# SPDX-License-Identifier: Apache-2.0
"""From flags to what is opened."""

from __future__ import annotations

import pytest
from launching import horovodrun

from horovod.runner import flags
from horovod.runner.watch.wanted import Wanted, wanted


@pytest.mark.parametrize(
    "words, port, command",
    [
        (["python", "train.py"], None, ["python", "train.py"]),
        (["--dashboard", "python", "train.py"], 0, ["python", "train.py"]),
        (["--dashboard=8431", "python", "train.py"], 8431, ["python", "train.py"]),
        (["--dashboard", "--verbose", "python"], 0, ["python"]),
        (["python", "train.py", "--dashboard", "--x"], None, ["python", "train.py", "--dashboard", "--x"]),
        (
            ["--dashboard", "--", "a", "--dashboard=0", "--dashboard"],
            0,
            ["a", "--dashboard=0", "--dashboard"],
        ),
    ],
)
def test_the_port_is_optional_and_the_command_is_left_alone(words, port, command):
    args = flags.parse(["-np", "2", *words])
    assert args.dashboard == port and args.command == command


@pytest.mark.parametrize(
    "words, made",
    [
        ([], None),
        (["--observe"], Wanted()),
        (["--top"], Wanted(top=True)),
        (["--dashboard", "--dashboard-address", "::1"], Wanted(dashboard=0, dashboard_address="::1")),
        (["--metrics-port", "9400"], Wanted(metrics_port=9400, metrics_address="127.0.0.1")),
    ],
)
def test_nothing_is_wanted_unless_said(words, made):
    args = vars(flags.parse(["-np", "2", *words, "true"]))
    env = {"HOROVOD_OBSERVE": "1"} if "--observe" in words else {}
    assert wanted(args, env) == made


@pytest.mark.parametrize(
    "words, message",
    [
        (["--dashboard=99999"], "--dashboard 99999: a port is a number from 0 to 65535"),
        (["--metrics-port", "-1"], "--metrics-port -1: a port is a number from 0 to 65535"),
        (
            ["--dashboard", "--dashboard-address", "192.0.2.1"],
            "--dashboard: cannot listen on 192.0.2.1 port 0",
        ),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(words, message):
    done = horovodrun("-np", "1", *words, "echo", "started")
    assert done.returncode == 1 and message in done.stderr, done.stderr
    assert "started" not in done.stdout
