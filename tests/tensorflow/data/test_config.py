# SPDX-License-Identifier: Apache-2.0
"""The file by which trainers find a service."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import threading

import pytest

pytest.importorskip("tensorflow")

from horovod.tensorflow.data.compute_service import TfDataServiceConfig  # noqa: E402

CONFIG = TfDataServiceConfig(2, 3, "compute", {"eth0": [("10.0.0.1", 4711)]}, b"\x00\xff", timeout=5)


def test_as_plain_values():
    plain = CONFIG.to_dict()
    assert plain == {
        "dispatchers": 2, "workers_per_dispatcher": 3, "dispatcher_side": "compute",
        "addresses": {"eth0": [("10.0.0.1", 4711)]}, "key": "00ff", "timeout": 5,
    }  # fmt: skip
    assert TfDataServiceConfig.from_dict(plain) == CONFIG
    assert TfDataServiceConfig.from_dict(json.loads(json.dumps(plain))) == CONFIG
    assert TfDataServiceConfig(1, 1, "compute", {}, b"").timeout == 60
    with pytest.raises(dataclasses.FrozenInstanceError):
        CONFIG.timeout = 1


def test_as_a_file_for_its_owner_only(tmp_path):
    path = str(tmp_path / "service.json")
    CONFIG.write(path)
    assert TfDataServiceConfig.read(path) == CONFIG
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600 and os.listdir(tmp_path) == ["service.json"]


def test_waiting_for_the_file(tmp_path, monkeypatch):
    """It is there in the end, whole."""
    path = str(tmp_path / "service.json")
    looked = threading.Event()
    exists = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda name: exists(name) or looked.set())
    monkeypatch.setattr("horovod.tensorflow.data.config._POLL_SECONDS", 0.01)
    found = []
    reader = threading.Thread(target=lambda: found.append(TfDataServiceConfig.read(path, True)))
    reader.start()
    assert looked.wait(60)
    CONFIG.write(path)
    reader.join(60)
    assert found == [CONFIG]
    with pytest.raises(FileNotFoundError):
        TfDataServiceConfig.read(path + ".other")
