# SPDX-License-Identifier: Apache-2.0
"""Which gradients share a node."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from horovod.common.bundles import FULL, SMALL, bundles


@given(st.lists(st.one_of(st.none(), st.integers(0, 2 * SMALL)), max_size=200))
def test_every_gradient_is_in_one_bundle(sizes):
    found = bundles(sizes)
    assert sorted(i for bundle in found for i in bundle) == list(range(len(sizes)))
    shared = []
    for bundle in found:
        own = [sizes[i] for i in bundle]
        if own[0] is None or own[0] > SMALL:
            assert len(bundle) == 1
        else:
            assert None not in own and max(own) <= SMALL and sum(own) <= FULL
            shared.append(own)
    for own, following in zip(shared, shared[1:]):  # none is closed before it is full
        assert sum(own) + following[0] > FULL
