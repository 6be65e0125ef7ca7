# SPDX-License-Identifier: Apache-2.0
"""Hosts and slots, under their old path."""

from horovod.runner.hosts import HostInfo, parse_host_files, parse_hosts, parse_hosts_and_slots
from horovod.runner.placement import INVALID_SLOT_INFO, SlotInfo, get_host_assignments

__all__ = [
    "INVALID_SLOT_INFO",
    "HostInfo",
    "SlotInfo",
    "get_host_assignments",
    "parse_host_files",
    "parse_hosts",
    "parse_hosts_and_slots",
]
