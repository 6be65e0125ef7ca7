# SPDX-License-Identifier: Apache-2.0
"""Where the launcher's store listens, and how each host reaches it."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Set

from horovod.rendezvous.network import interface_address, is_local, loopback
from horovod.runner.ssh import real_name


@dataclass
class AddressPlan:
    """Where the store listens and how each host reaches it."""

    bind: List[str]
    store_for: Dict[str, str]  # host -> address of the store as seen from there
    local: Set[str]  # hosts that are this machine
    reasons: List[str] = field(default_factory=list)  # for --verbose


def choose_addresses(hosts: List[str], nics: Optional[List[str]] = None) -> AddressPlan:
    """Plans the store's addresses for these hosts."""
    local = {host for host in hosts if is_local(host)}
    remote = [host for host in hosts if host not in local]
    plan = AddressPlan([], {}, local)
    if not remote:
        here = loopback()
        plan.bind = [here]
        plan.store_for = {host: here for host in hosts}
        plan.reasons.append(f"all hosts are this machine: workers meet at {here}")
        return plan
    for host in remote:
        if nics:
            address = interface_address(nics[0])
            why = f"interface {nics[0]} was asked for"
        else:
            address = source_address(host)
            why = f"it is this machine's address on the route to {host}"
        plan.store_for[host] = address
        plan.bind.append(address)
        plan.reasons.append(f"{host} reaches the launcher at {address}: {why}")
    # Local ranks must tell their peers an address that other hosts can reach, so they use one as well.
    for host in local:
        plan.store_for[host] = plan.bind[0]
    plan.bind = list(dict.fromkeys(plan.bind))
    return plan


def source_address(host: str) -> str:
    """The address this machine would use to talk to a host (nothing is sent)."""
    try:
        family, _, _, _, target = socket.getaddrinfo(real_name(host), 9, type=socket.SOCK_DGRAM)[0]
    except OSError as error:
        raise ValueError(
            f"Cannot resolve host {host} ({error}). Check its spelling, DNS or /etc/hosts, "
            "or give it a HostName in ~/.ssh/config"
        ) from error
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(target)
        except OSError as error:
            raise ValueError(f"There is no route to host {host} ({target[0]}): {error}") from error
        return str(probe.getsockname()[0])
