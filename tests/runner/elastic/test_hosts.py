# SPDX-License-Identifier: Apache-2.0
"""Hosts in a stable order, and those that failed."""

from __future__ import annotations

import pytest

from horovod.runner.elastic.hosts import FOREVER, HostUpdateResult, KnownHosts

NO, GONE, NEW = HostUpdateResult.no_update, HostUpdateResult.removed, HostUpdateResult.added


def test_changes_and_order():
    hosts = KnownHosts()
    assert hosts.listed({"b": 2, "a": 1}) == NEW
    assert hosts.listed({"a": 1, "b": 2}) == NO
    assert hosts.names() == ["b", "a"], "as first seen"
    assert hosts.listed({"a": 1, "b": 2, "c": 1}) == NEW
    assert hosts.listed({"a": 2, "b": 1, "c": 1}) == NEW | GONE == HostUpdateResult.mixed
    assert hosts.listed({"a": 2}) == GONE
    assert hosts.listed({"a": 0}) == GONE, "no slots, no host"
    assert hosts.usable(0.0) == [] and hosts.capacity(0.0) == 0


def test_for_ever_unless_it_leaves_and_comes_back():
    hosts = KnownHosts()
    hosts.listed({"a": 1, "b": 1})
    assert hosts.blacklist("a", 0.0) == FOREVER
    assert hosts.usable(1e9) == [("b", 1)] and hosts.is_blacklisted("a", 1e9)
    assert hosts.wake_at(0.0) is None
    hosts.listed({"b": 1})
    hosts.listed({"a": 1, "b": 1})
    assert hosts.usable(0.0) == [("b", 1), ("a", 1)]


def test_the_cool_down_grows_and_ends():
    hosts = KnownHosts((10, 100), chance=lambda: 0.5)
    hosts.listed({"a": 1})
    assert hosts.blacklist("a", 0.0) == 10 * 2 + 5
    assert hosts.blacklist("a", 5.0) == 25, "again within that time has no effect"
    assert hosts.wake_at(5.0) == 25
    assert not hosts.is_blacklisted("a", 25.0)
    assert hosts.blacklist("a", 30.0) == 30 + 10 * 4 + 5
    assert hosts.blacklist("a", 100.0) == 100 + 85
    assert hosts.blacklist("a", 500.0) == 500 + 100, "never longer than the upper limit"


def test_one_that_never_answered_is_tried_again():
    hosts = KnownHosts()
    hosts.listed({"a": 1})
    assert hosts.unreachable("a", 0.0) < 60


@pytest.mark.parametrize(
    "cooldown, text",
    [
        ((0, 5), "Provided cooldown lower limit: 0 cannot be lower than default cooldown lower limit: 1"),
        ((1, 3601), "upper limit: 3601 cannot be higher than default cooldown upper limit: 3600"),
        ((9, 5), "ends before it begins"),
    ],
)
def test_wrong_ranges(cooldown, text):
    with pytest.raises(ValueError, match=text):
        KnownHosts(cooldown)
