# SPDX-License-Identifier: Apache-2.0
"""Meeting through a key-value store of PyTorch: torchrun's, or that of an initialised process group.

Such a store asks nobody for a password: whoever can reach it while the job runs can read the secret.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from horovod.rendezvous import offers
from horovod.rendezvous.errors import StoreError
from horovod.rendezvous.identity import Identity


def agree(me: Identity, name: str, shown: str, store: Any, address: str, timeout: float) -> offers.Offer:
    """Rank 0 serves our store and leaves word of it in PyTorch's; the others wait for that.

    Args:
        name: the key, which no other meeting has.
        shown: PyTorch's store as errors call it.
        address: where rank 0 serves ours.
    """
    try:
        if me.rank == 0:
            offer = offers.remembered(name) or offers.serve(name, [address], me.size)
            store.set(name, offer.to_bytes().decode())
            return offer
        store.wait([name], timedelta(seconds=timeout))
        return offers.Offer.from_bytes(store.get(name))
    except RuntimeError as error:
        raise StoreError(
            f"rank {me.rank} of {me.size} could not meet rank 0 through {shown} within {timeout:g} s: {error}"
        ) from error
