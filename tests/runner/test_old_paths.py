# SPDX-License-Identifier: Apache-2.0
"""Helpers that scripts import from horovod.runner.common.util."""

from __future__ import annotations

import pytest

from horovod.runner import flags
from horovod.runner.common.util import config_parser, env, hosts, secret, timeout


@pytest.mark.parametrize(
    "variables, expected",
    [
        ({}, (0, 1)),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"}, (1, 4)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, (2, 3)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, (0, 2)),
    ],
)
def test_rank_and_size(monkeypatch, variables, expected):
    for name in (
        "HOROVOD_RANK",
        "HOROVOD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "PMI_RANK",
        "PMI_SIZE",
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert env.get_env_rank_and_size() == expected
    if variables:
        monkeypatch.delenv(list(variables)[0])
        with pytest.raises(RuntimeError, match="only one of"):
            env.get_env_rank_and_size()


@pytest.mark.parametrize("name", ["PATH", "PYTHONPATH", "MINE", "HOROVOD_TIMELINE"])
def test_exportable(name):
    assert env.is_exportable(name)


@pytest.mark.parametrize("name", ["BASH_FUNC_x%%", "OLDPWD", "CUDA_VISIBLE_DEVICES", "SSH_AUTH_SOCK"])
def test_not_exportable(name):
    assert not env.is_exportable(name)


def test_digests():
    key = secret.make_secret_key()
    assert len(key) == 32 and key != secret.make_secret_key()
    digest = secret.compute_digest(key, b"data")
    assert secret.check_digest(key, b"data", digest) and not secret.check_digest(key, b"Data", digest)


def test_timeout():
    limit = timeout.Timeout(0, "Waited for {activity}.")
    with pytest.raises(timeout.TimeoutException, match="Waited for tea. Timeout after 0 seconds."):
        while True:
            limit.check_time_out_for("tea")
    assert limit.remaining() == 0 and timeout.Timeout(100, "").remaining() > 99


def test_hosts_and_flags():
    assert hosts.get_host_assignments(hosts.parse_hosts("a:2"), 2)[1].rank == 1
    args = flags.parse(["-np", "1", "--cache-capacity", "3", "x"])
    assert config_parser.set_env_from_args({"A": "1"}, args) == {"A": "1", "HOROVOD_CACHE_CAPACITY": "3"}
