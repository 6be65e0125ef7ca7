# SPDX-License-Identifier: Apache-2.0
"""Process sets: registration, queries, errors, ids."""

from __future__ import annotations

import numpy as np
import pytest
from tests_support import run_world, shared_world

from horovod.common.process_sets import ProcessSet, process_set_id


def test_ranks_are_sorted_and_checked():
    assert ProcessSet([2, 0, 1]).ranks == [0, 1, 2]
    assert ProcessSet(range(2)).ranks == [0, 1]
    assert ProcessSet(np.array([3, 1])).ranks == [1, 3]
    for wrong in (["a"], [1.5], 3, None, [True]):
        with pytest.raises(ValueError, match="should be initialized with a list of process ranks"):
            ProcessSet(wrong)


def test_an_unregistered_set_knows_nothing():
    fresh = ProcessSet([0])
    assert fresh.process_set_id is None and fresh.size() is None and fresh.rank() is None
    assert str(fresh) == "ProcessSet(process_set_id=None, ranks=[0], mpi_comm=None)"
    with pytest.raises(TypeError, match="not registered"):
        process_set_id(fresh)


def add_and_remove():
    import horovod.numpy as hvd

    report = {}
    evens = hvd.add_process_set([2, 0])
    report["evens"] = (evens.process_set_id, evens.size(), evens.included(), evens.ranks)
    if evens.included():
        report["rank"] = evens.rank()
        report["sum"] = float(hvd.allreduce(float(hvd.rank()), op=hvd.Sum, process_set=evens))
    else:
        for call in (evens.rank, lambda: hvd.allreduce(1.0, process_set=evens)):
            try:
                call()
            except ValueError as error:
                report.setdefault("errors", []).append(str(error))
    try:
        hvd.add_process_set(hvd.ProcessSet([0, 2]))
    except ValueError as error:
        report["duplicate"] = str(error)
    try:
        hvd.add_process_set([0, 99])
    except ValueError as error:
        report["invalid"] = str(error)
    other = hvd.add_process_set([1])
    from horovod.common.basics import basics

    report["all"] = basics._get_process_set_ids_and_ranks()
    hvd.barrier()
    report["removed"] = (hvd.remove_process_set(evens), evens.process_set_id, evens.ranks)
    report["again"] = hvd.remove_process_set(evens)
    report["global"] = hvd.remove_process_set(hvd.global_process_set)
    reused = hvd.add_process_set([0, 1])
    report["reused"] = reused.process_set_id
    report["left"] = (hvd.remove_process_set(other), hvd.remove_process_set(reused))
    report["end"] = basics._get_process_set_ids_and_ranks()
    return report


@pytest.mark.parametrize("hosts", [None, "localhost:2,127.0.0.1:1"])
def test_add_use_and_remove(hosts):
    reports = shared_world(3, hosts=hosts).run(add_and_remove)
    for rank, report in enumerate(reports):
        number = report["evens"][0]
        assert report["evens"] == (number, 2, rank != 1, [0, 2]) and number > 0
        assert report["duplicate"].startswith("Attempted to add a duplicate process set: ProcessSet(")
        assert "invalid rank" in report["invalid"]
        assert report["all"][0] == [0, 1, 2] and report["all"][number] == [0, 2]
        assert [1] in report["all"].values()
        assert report["removed"] == (True, None, [0, 2])
        assert report["again"] is False and report["global"] is False
        assert report["reused"] == number, "freed ids are used again, first freed first"
        assert report["left"] == (True, True)
        assert report["end"] == {0: [0, 1, 2]}
    assert [reports[0]["rank"], reports[2]["rank"]] == [0, 1]
    assert reports[0]["sum"] == reports[2]["sum"] == 2.0
    assert reports[1]["errors"][0] == "Process is not part of provided process set."
    assert "Rank 1 is not a member of the provided process set." in reports[1]["errors"][1]


def static():
    import horovod.numpy as hvd

    mine, theirs = hvd.ProcessSet([0]), hvd.ProcessSet([1, 0])
    hvd.init(process_sets=[mine, theirs])
    total = float(hvd.allreduce(1.0, op=hvd.Sum, process_set=theirs)) if theirs.included() else 2.0
    hvd.barrier()  # a rank that ends here would end the job of those still reducing
    errors = []
    for call in (lambda: hvd.add_process_set([1]), lambda: hvd.remove_process_set(mine)):
        try:
            call()
        except ValueError as error:
            errors.append(str(error))
    same = hvd.ProcessSet([0])
    hvd.init(process_sets=[same])
    return mine.process_set_id, theirs.process_set_id, total, errors, same.process_set_id, mine.size()


def test_static_sets_over_three_ranks():
    for result in run_world(static, 3):
        assert result[:3] == (1, 2, 2.0)
        assert "HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow adding" in result[3][0]
        assert "HOROVOD_DYNAMIC_PROCESS_SETS=1 to allow removing" in result[3][1]
        assert result[4:] == (1, 1)


def duplicates():
    import horovod.numpy as hvd

    second = hvd.ProcessSet([0])
    try:
        hvd.init(process_sets=[hvd.ProcessSet([0]), second])
    except ValueError as error:
        return str(error), hvd.is_initialized(), second.process_set_id
    return "nothing"


def test_duplicate_static_sets_are_named():
    for text, initialised, number in run_world(duplicates, 2):
        assert text.startswith(
            "Horovod could not be initialized because process_sets entry number 1 is a duplicate"
        )
        assert initialised and number is None


def mismatching():
    import os

    import horovod.numpy as hvd

    sets = [hvd.ProcessSet([0])] if os.environ["HOROVOD_RANK"] == "0" else []
    try:
        hvd.init(process_sets=sets)
    except Exception as error:
        return type(error).__name__, str(error), hvd.is_initialized()
    return "nothing"


def test_different_sets_on_different_ranks_fail_everywhere():
    for kind, text, initialised in run_world(mismatching, 2):
        assert kind == "ValueError" and text.startswith("Horovod initialization failed.")
        assert "mismatching process sets" in text and not initialised


def test_wrong_types_are_refused():
    from horovod.common.basics import basics

    with pytest.raises(ValueError, match='"dynamic"'):
        basics.init(process_sets="static")
    with pytest.raises(ValueError, match="must contain ProcessSet"):
        basics.init(process_sets=[[0]])
