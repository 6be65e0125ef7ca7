# SPDX-License-Identifier: Apache-2.0
"""The check that ranks train the same model."""

from __future__ import annotations

import warnings
from typing import Any, List, Optional

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests_support import shared_world

from horovod.common import weights
from horovod.common.weights import PARTS, Fingerprint, difference, of_array, record_of


def model(tensors: int, seed: int = 0, change: Optional[int] = None, by: float = 1.0) -> List[Fingerprint]:
    """The fingerprints of a model's weights; one of them may be changed."""
    generator = np.random.default_rng(seed)
    arrays = [generator.standard_normal((3, 4)).astype(np.float32) for _ in range(tensors)]
    if change is not None:
        arrays[change] = (arrays[change] * (1 + by)).astype(np.float32)
    return [of_array(f"weight.{i}", array) for i, array in enumerate(arrays)]


@given(st.integers(0, 200))
def test_equal_models_do_not_differ(tensors):
    records = [record_of(model(tensors)) for _ in range(3)]
    assert difference(model(tensors), records, [0, 1, 2]) == ""


@given(st.integers(1, 200), st.data())
def test_one_changed_weight_is_found_and_placed(tensors, data):
    changed = data.draw(st.integers(0, tensors - 1))
    records = [record_of(model(tensors)), record_of(model(tensors, change=changed, by=1e-3))]
    text = difference(model(tensors), records, [4, 7])
    assert text.startswith("those of rank 7 are not rank 4's; the first to differ is ")
    named = [
        int(part.split()[0]) for part in text.split("weight.")[1:]
    ]  # one, or the first and last of a part
    assert named[0] <= changed <= named[-1] and (len(named) == 1 or tensors > PARTS)


def test_differences_of_rounding_are_no_differences():
    records = [record_of(model(5)), record_of(model(5, change=2, by=2e-7))]
    assert records[0] != records[1] and difference(model(5), records, [0, 1]) == ""


def test_what_is_not_a_number_differs():
    broken = [of_array("weight.0", np.array([np.nan, 1.0])), *model(2)[1:]]
    assert "weight.0" in difference(model(2), [record_of(model(2)), record_of(broken)], [0, 1])


def test_another_number_of_tensors_differs():
    text = difference(model(3), [record_of(model(3)), record_of(model(2))], [0, 1])
    assert text == "rank 1 has another number of them than rank 0, which has 3"


def test_many_ranks_are_not_all_listed():
    records = [record_of(model(1))] + [record_of(model(1, seed=rank)) for rank in range(1, 21)]
    text = difference(model(1), records, list(range(21)))
    assert "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 12 more" in text


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "bool", "complex64", "complex128"]
)
def test_fingerprints_see_every_element(dtype):
    array = np.zeros(50, dtype)
    prints = {of_array("x", array).bits}
    for i in range(50):
        changed = array.copy()
        changed[i] = 1
        prints.add(of_array("x", changed).bits)
    assert len(prints) == 2  # a change is seen wherever it is


# ----------------------------------------------------------------------------------- on ranks --


def warned(own_weights: Any, process_set: Any = None) -> List[str]:
    """The warnings of a check over this rank's weights, which is followed until it is over on all members."""
    import horovod.numpy as hvd

    process_set = process_set or hvd.global_process_set
    check = weights.WeightCheck("after the first step", "Do this.")
    over = 0.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        while not over:
            if not check.over:
                check.after_step(process_set, lambda: own_weights)
            over = hvd.allreduce(float(check.over), op=hvd.Min, name="the next step", process_set=process_set)
    return [str(warning.message) for warning in caught]


def test_ranks_with_the_same_weights_hear_nothing():
    assert shared_world(3).run(lambda: warned(model(4))) == [[], [], []]


def test_ranks_with_other_weights_are_named_once_by_the_first():
    def case() -> List[str]:
        import horovod.numpy as hvd

        return warned(model(4, change=1 if hvd.rank() == 2 else None))

    (text,), *others = shared_world(3).run(case)
    assert others == [[], []]
    assert "differ after the first step: those of rank 2 are not rank 0's" in text
    assert "the first to differ is weight.1. " in text and "Do this. HOROVOD_CHECK_WEIGHTS=0" in text


def test_ranks_with_different_numbers_of_weights_do_not_hang():
    def case() -> List[str]:
        import horovod.numpy as hvd

        return warned(model(2 + hvd.rank()))

    (text,), other = shared_world(2).run(case)
    assert "rank 1 has another number of them than rank 0" in text and other == []


def case_on_pairs() -> List[str]:
    import horovod.numpy as hvd

    pair, single = hvd.add_process_set([0, 1]), hvd.add_process_set([2])
    own = pair if hvd.rank() < 2 else single
    found = warned(model(3, seed=own.ranks[0]), own)
    hvd.barrier()
    hvd.remove_process_set(pair)
    hvd.remove_process_set(single)
    return found


def test_weights_are_compared_within_their_process_set():
    assert shared_world(3).run(case_on_pairs) == [[], [], []]


def test_a_rank_that_takes_no_part_holds_nobody_up():
    def case() -> float:
        import horovod.numpy as hvd

        check = weights.WeightCheck("after the first step", "")
        total = 0.0
        for _ in range(20):
            total += float(hvd.allreduce(1.0, name="step", op=hvd.Sum))
            if hvd.rank() == 0 and not check.over:
                check.after_step(hvd.global_process_set, lambda: model(1))
        assert hvd.rank() != 0 or not check.over
        if hvd.rank() != 0:  # so that the world is left as it was
            late = weights.WeightCheck("after the first step", "")
            late.after_step(hvd.global_process_set, lambda: model(1))
        hvd.barrier()
        return total

    assert shared_world(2).run(case) == [40.0, 40.0]


def test_it_can_be_turned_off():
    def case() -> bool:
        import os

        import horovod.numpy as hvd

        os.environ["HOROVOD_CHECK_WEIGHTS"] = "0"
        try:
            check = weights.WeightCheck("after the first step", "")
            check.after_step(hvd.global_process_set, lambda: model(1, seed=hvd.rank()))
            return check.over
        finally:
            del os.environ["HOROVOD_CHECK_WEIGHTS"]

    assert shared_world(2).run(case) == [True, True]
