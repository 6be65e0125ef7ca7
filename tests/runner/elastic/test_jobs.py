# SPDX-License-Identifier: Apache-2.0
"""Elastic jobs on one machine: workers die, join, leave, and the training ends with what it must."""

from __future__ import annotations

import os
import signal

import pytest
from elastic_jobs import ElasticRun, check_results
from launching import descendants, still_there

HERE = ["localhost:3"]


@pytest.mark.parametrize("lost", [[0], [2], [0, 1]], ids=["rank 0", "the last rank", "two at once"])
def test_issue_3264(tmp_path, lost):
    """Survivors of a death keep their processes, and no sample is lost."""
    hold = tmp_path / "hold"
    script = ["--steps", "30", "--commit-every", "4", "--wait-for", str(tmp_path / "enough")]
    with ElasticRun(
        tmp_path, HERE, "-np", "3", "--min-np", "1", script=[*script, "--hold", str(hold)]
    ) as job:
        job.wait_for("train", count=3, size=3)
        job.wait_for_steps(3)
        before = job.world()
        hold.touch()  # the replacements come after the survivors have gone on
        dead = job.kill(*lost)
        job.wait_for("train", count=3 - len(lost), size=3 - len(lost))
        survivors = set(before.values()) - set(dead)
        assert set(job.world().values()) == survivors, "no process that lives is restarted"
        hold.unlink()
        job.wait_for("train", count=6, size=3)  # the replacements have joined
        assert survivors < set(job.world().values())
        job.wait_for_steps(2)
        (tmp_path / "enough").touch()
        check_results(job.finish(), 3)
    kinds = [one["event"] for one in job.events()]
    assert kinds.count("lost") == len(lost) and kinds.count("formed") >= 3
    assert any("ended by SIGKILL" in line for line in job.errors)


def test_death_while_the_world_re_forms(tmp_path):
    script = ["--steps", "40", "--die-in-reset", "1", "--wait-for", str(tmp_path / "enough")]
    with ElasticRun(tmp_path, HERE, "-np", "3", "--min-np", "1", "--max-np", "3", script=script) as job:
        job.wait_for("train", count=3, size=3)
        job.wait_for_steps(3)
        job.kill(2)
        (tmp_path / "enough").touch()
        check_results(job.finish())
    assert len(job.events("lost")) >= 2


def test_issue_2652(tmp_path):
    """A new worker gets its state while the others train; hosts come and go, nobody loses a step."""
    script = ["--steps", "30", "--wait-for", str(tmp_path / "enough")]
    with ElasticRun(tmp_path, ["localhost:1"], "-np", "1", "--min-np", "1", script=script) as job:
        job.wait_for("train", size=1)
        job.hosts("localhost:1", "127.0.0.1:2")
        job.wait_for("train", count=3, size=3)
        assert sorted(one["host"] for one in job.matching("train", size=3)) == ["127.0.0.1"] * 2 + [
            "localhost"
        ]
        job.wait_for_steps(3)
        job.hosts("127.0.0.1:1")
        job.wait_for("train", count=1, size=1, host="127.0.0.1")
        job.wait_for_steps(3)
        (tmp_path / "enough").touch()
        results = job.finish()
        check_results(results, 1)
    steps = [one["step"] for one in job.matching("step")]
    assert steps == list(range(1, len(steps) + 1)), "a change of hosts costs nobody a step"
    assert {one["text"] for one in job.events("left")} >= {
        "rank 0 on localhost has left: localhost has been removed from the job"
    }


def test_sigterm_is_a_wish_to_leave(tmp_path):
    script = ["--steps", "25", "--commit-every", "5", "--wait-for", str(tmp_path / "enough")]
    with ElasticRun(tmp_path, HERE, "-np", "3", "--min-np", "1", script=script) as job:
        job.wait_for("train", count=3, size=3)
        job.wait_for_steps(3)
        (gone,) = job.kill(1, number=signal.SIGTERM)
        job.wait_for("train", count=2, size=2)
        (tmp_path / "enough").touch()
        results = job.finish()
        check_results(results, 2)
    assert gone not in {one["pid"] for one in results}
    steps = [one["step"] for one in job.matching("step")]
    assert len(steps) >= 25 and steps == list(range(1, len(steps) + 1)), "nobody loses a step"
    assert "was asked to end" in job.events("left")[0]["text"]


def test_issue_4021(tmp_path):
    """Process sets made before the loop are made again, those whose ranks are there."""
    hold = tmp_path / "hold"
    script = ["--steps", "30", "--sets", "--wait-for", str(tmp_path / "enough"), "--hold", str(hold)]
    with ElasticRun(tmp_path, HERE, "-np", "3", "--min-np", "1", script=script) as job:
        job.wait_for("train", count=3, size=3)
        job.wait_for("set", ranks=[0, 2])
        hold.touch()  # the replacement comes after the others have used what is left
        job.kill(0)
        job.wait_for("train", count=2, size=2)
        job.wait_for("set", ranks=[0, 1], generation=2)
        hold.unlink()
        job.wait_for("train", count=6, size=3)
        generation = job.matching("train")[-1]["generation"]
        job.wait_for("set", count=2, ranks=[0, 2], generation=generation)
        (tmp_path / "enough").touch()
        check_results(job.finish(), 3)
    seen = {(tuple(one["ranks"]), one["generation"]) for one in job.matching("set")}
    assert ((0, 1), 2) in seen and ((0, 2), 2) not in seen, "rank 2 was missing there"


def test_an_error_of_the_script_ends_the_job(tmp_path):
    with ElasticRun(tmp_path, HERE, "-np", "3", "--min-np", "1", script=["--raise-at", "5"]) as job:
        assert job.end() == 1
    assert any("ValueError: sample 5 is bad" in line for line in job.errors)
    assert "Process name: 1" in job.text() and job.events("script error")
    assert len(job.matching("train")) <= 9, "tried once more, not for ever"


def test_ranks_that_disagree_end_the_job_at_once(tmp_path):
    with ElasticRun(tmp_path, HERE, "-np", "3", "--min-np", "1", script=["--mismatch-at", "3"]) as job:
        assert job.end() == 1
    assert len(job.matching("train")) == 3, "nobody tries again"
    assert "odd" in job.text() and "RanksDisagree" in job.text()


def test_the_reset_limit_ends_the_job(tmp_path):
    words = ["-np", "3", "--min-np", "1", "--reset-limit", "0"]
    with ElasticRun(tmp_path, HERE, *words, script=["--steps", "4000"]) as job:
        job.wait_for("train", count=3, size=3)
        job.kill(1)
        assert job.end() == 1
    assert "number of resets during elastic job exceeded limit: 0" in job.text()


def test_one_loss_is_one_reset(tmp_path):
    """The job goes on, without a replacement, and ends well."""
    words = ["-np", "2", "--min-np", "1", "--reset-limit", "1"]
    hold, enough = tmp_path / "hold", tmp_path / "enough"
    script = ["--steps", "10", "--wait-for", str(enough), "--hold", str(hold)]
    with ElasticRun(tmp_path, ["localhost:2"], *words, script=script) as job:
        job.wait_for("train", count=2, size=2)
        hold.touch()  # the replacement comes after the survivor has gone on
        job.kill(1)
        job.wait_for("train", size=1)
        hold.unlink()
        job.wait_for_steps(100)
        enough.touch()
        check_results(job.finish(), 1)
    assert "the last of 1 resets" in job.text() and len(job.events("formed")) == 2


def test_everything_ends_with_the_launcher(tmp_path):
    with ElasticRun(tmp_path, HERE, "-np", "3", "--min-np", "1", script=["--steps", "4000"]) as job:
        job.wait_for("train", count=3, size=3)
        everybody = descendants(job.process.pid)
        os.kill(job.process.pid, signal.SIGKILL)
        job.process.wait()
        assert still_there(everybody) == []


def test_ctrl_c_ends_everything(tmp_path):
    with ElasticRun(tmp_path, HERE, "-np", "3", "--min-np", "1", script=["--steps", "4000"]) as job:
        job.wait_for("train", count=3, size=3)
        everybody = descendants(job.process.pid)
        os.kill(job.process.pid, signal.SIGINT)
        assert job.end() == 130
        assert still_there(everybody) == []


def test_everybody_who_has_the_state_is_lost(tmp_path):
    with ElasticRun(
        tmp_path, ["localhost:1"], "-np", "1", "--min-np", "1", script=["--steps", "4000"]
    ) as job:
        job.wait_for("train")
        job.wait_for_steps(2)
        job.kill(0)
        assert job.end() == 1
    assert "unable to broadcast state" in job.text()
