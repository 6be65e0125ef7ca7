# SPDX-License-Identifier: Apache-2.0
"""This rank's place in a process set, with the checks that need no other rank."""

from __future__ import annotations

from typing import Tuple

from horovod.common.basics import basics
from horovod.common.exceptions import NOT_INITIALIZED, HorovodInternalError
from horovod.common.verbs import REDUCESCATTER, Verb


def place_in(set_id: int, verb: Verb = REDUCESCATTER) -> Tuple[int, int]:
    """The size of a process set and this rank's index in it.

    Args:
        verb: what is to be done there, for the error: the engine's own texts differ from verb to verb.

    Raises:
        HorovodInternalError: Horovod is not initialised.
        ValueError: there is no such set, or this rank is no member of it.
    """
    if not basics.is_initialized():
        raise HorovodInternalError(NOT_INITIALIZED)
    if set_id == 0:
        return basics.size(), basics.rank()
    try:
        members = basics.process_set_ranks(set_id) if 0 < set_id < 1 << 31 else []
    except ValueError:  # not registered
        members = []
    if basics.rank() in members:
        return len(members), members.index(basics.rank())
    if verb is REDUCESCATTER:
        raise ValueError(f"Invalid process set id for this rank: {set_id}")
    if members:
        raise ValueError(f"{verb.title}: Rank {basics.rank()} is not a member of the provided process set.")
    raise ValueError(f"{verb.title}: Process set provided does not exist, or has not been registered.")


def check_member(verb: Verb, set_id: int) -> None:
    """Raises ValueError unless this rank may take part.

    For front ends that hand collectives to their framework's queue: the engine would refuse them too, but
    later and out of the user's sight.
    """
    basics.size()  # says so if Horovod is not initialised
    place_in(set_id, verb)
