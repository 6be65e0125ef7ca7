# SPDX-License-Identifier: Apache-2.0
"""Where the launcher's store listens."""

from __future__ import annotations

from horovod.runner import addresses


def test_one_machine_stays_on_the_loopback_interface():
    plan = addresses.choose_addresses(["localhost", "127.0.0.1"])
    assert plan.bind == ["127.0.0.1"] and plan.local == {"localhost", "127.0.0.1"}
    assert set(plan.store_for.values()) == {"127.0.0.1"} and "this machine" in plan.reasons[0]


def test_several_hosts_use_the_address_that_leads_there(monkeypatch):
    routes = {"a": "10.0.0.1", "b": "10.0.0.1", "c": "192.168.0.1"}
    monkeypatch.setattr(addresses, "source_address", routes.__getitem__)
    plan = addresses.choose_addresses(["localhost", "a", "b", "c"])
    assert plan.bind == ["10.0.0.1", "192.168.0.1"]
    assert plan.store_for == {"localhost": "10.0.0.1", **routes}
    assert "c reaches the launcher at 192.168.0.1" in plan.reasons[2]
