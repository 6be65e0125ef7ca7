# SPDX-License-Identifier: Apache-2.0
"""Real jobs that are looked into while they run: the page's data, stacks, metrics, signals."""

from __future__ import annotations

import os
import signal
import stat
import sys
import textwrap
import urllib.request

import pytest
from elastic_jobs import ElasticRun
from launching import descendants, environment, horovodrun, listening
from pytest import approx
from waiting import until
from watching import Visitor, WatchedJob, row


def visitor(job):
    made = Visitor(job.address())
    assert made.enter() == 303
    return made


def test_nothing_listens_and_nobody_reports_unless_asked_for(tmp_path):
    with WatchedJob(tmp_path, 2) as job:
        job.wait_for_ranks()
        store = listening([job.process.pid])
        assert len(store) == 1 and list(store.values()) == ["127.0.0.1"]  # where ranks meet
        assert listening(descendants(job.process.pid)[1:]) == {}
        assert not os.path.exists(f"/tmp/horovod-{os.getuid()}/{job.process.pid}.sock")
        assert job.finish() == 0, job.err
        assert job.err == []


def test_the_page_shows_a_job_of_three_ranks(tmp_path):
    with WatchedJob(tmp_path, 3, "--dashboard") as job:
        job.wait_for_ranks()
        ports = listening([job.process.pid])
        assert sorted(set(ports.values())) == ["127.0.0.1"] and len(ports) == 2
        page = visitor(job)
        # A step's samples are counted before it: in the first report there may be one more of them.
        view = page.wait_for(
            lambda view: all(
                one["steps_s"] and not one["bad"] and one["samples_s"] == approx(32 * one["steps_s"], rel=0.2)
                for one in view["ranks"]
            )
        )
        assert all(0 < one["waiting"] <= 1 for one in view["ranks"][:2])  # rank 2 is the slowest
        assert [one["rank"] for one in view["ranks"]] == [0, 1, 2]
        assert [one["pid"] for one in view["ranks"]] == [job.pids[rank] for rank in range(3)]
        assert all(one["memory"] > 1e6 for one in view["ranks"])
        assert view["totals"]["ranks"] == 3 and view["hosts"] == 1 and view["end"] is None
        texts = [line["text"] for line in page.wait_for(lambda view: view["lines"])["lines"]]
        assert any("trains in process" in text for text in texts)
        stream = page.views()
        next(stream)
        assert job.finish() == 0, job.err
        *_, last = stream  # ends with the job
        assert last["end"] == "" and {one["state"] for one in last["ranks"]} == {"ended"}


def test_a_frozen_rank_turns_red_with_what_was_last_known_of_it(tmp_path):
    with WatchedJob(tmp_path, 2, "--dashboard") as job:
        job.wait_for_ranks()
        page = visitor(job)
        page.wait_for(lambda view: all(one["bytes_s"] for one in view["ranks"]))
        job.freeze(1)
        frozen = row(page.wait_for(lambda view: row(view, 1)["state"] == "silent"), 1)
        assert frozen["bad"] and "stopped" in frozen["why"]
        assert "watched.py" in frozen["stack"] and "in main" in frozen["stack"]
        job.thaw(1)
        goes_on = "rank 1 on localhost goes on"
        page.wait_for(lambda view: any(event["text"] == goes_on for event in view["events"]))
        view = page.wait_for(lambda view: True)  # a new visitor is shown all events
        texts = [event["text"] for event in view["events"] if event["text"].startswith("rank 1")]
        assert any(text.startswith("rank 1 on localhost has said nothing for") for text in texts)
        assert "rank 1 on localhost goes on" in texts
        assert job.finish() == 0, job.err


def test_a_rank_stuck_in_its_own_code_turns_red_with_a_live_stack(tmp_path):
    open(tmp_path / "stuck", "w").close()
    with WatchedJob(tmp_path, 2, "--dashboard", stuck_rank=1) as job:
        job.wait_for_ranks()
        page = visitor(job)
        # The line itself: its own answer, not the last report.
        line = "in wait_in_the_data_loader\n    while_it_is_there(path)"
        view = page.wait_for(lambda view: line in row(view, 1).get("stack", ""))
        stuck = row(view, 1)
        assert stuck["bad"] and stuck["state"] == "stalled", stuck
        assert "has kept the others waiting for" in stuck["why"]
        waiting = row(view, 0)
        assert waiting["state"] == "waiting"
        assert (waiting["kind"], waiting["tensor"], waiting["missing"]) == (
            "ALLREDUCE", "allreduce.gradient", [1],
        )  # fmt: skip
        os.unlink(job.stuck)
        page.wait_for(lambda view: not row(view, 1)["bad"])
        assert job.finish() == 0, job.err


def test_a_failed_rank_and_the_end_of_the_job_are_shown(tmp_path):
    with WatchedJob(tmp_path, 2, "--dashboard") as job:
        job.wait_for_ranks()
        page = visitor(job)
        stream = page.views()
        next(stream)
        os.kill(job.pids[1], signal.SIGKILL)
        *_, last = stream
        assert row(last, 1)["state"] == "failed" and "exit code 137" in row(last, 1)["why"]
        assert "Process name: 1" in last["end"]
        assert job.process.wait(60) == 1


def test_stacks_from_another_shell(tmp_path):
    open(tmp_path / "stuck", "w").close()
    with WatchedJob(tmp_path, 2, "--observe", stuck_rank=0) as job:
        job.wait_for_ranks()
        until(lambda: any("waits for data" in line for line in job.out), "rank 0 is stuck")
        path = f"/tmp/horovod-{os.getuid()}/{job.process.pid}.sock"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
        listed = horovodrun("--stacks")
        assert f"{job.process.pid}  " in listed.stdout and "watched.py" in listed.stdout
        where = {"rank 0 on localhost": "wait_in_the_data_loader", "rank 1 on localhost": "allreduce"}
        for name in (str(job.process.pid), str(tmp_path)):
            assert job.stacks(where, name).count("---- rank ") == 2
        os.unlink(job.stuck)
        assert job.finish() == 0, job.err
        assert not os.path.exists(path)
    done = horovodrun("--stacks", str(job.process.pid))
    assert done.returncode == 1 and "no such job runs here" in done.stderr


@pytest.mark.parametrize("flags", [["--observe"], []])
def test_sigquit_prints_stacks_and_ends_nothing(tmp_path, flags):
    open(tmp_path / "stuck", "w").close()
    with WatchedJob(tmp_path, 2, *flags, stuck_rank=1) as job:
        job.wait_for_ranks()
        until(lambda: any("waits for data" in line for line in job.out), "rank 1 is stuck")
        job.shows("wait_in_the_data_loader")
        os.unlink(job.stuck)
        assert job.finish() == 0, job.err


def test_sigquit_spares_workers_that_would_die_of_it(tmp_path):
    command = [
        "sh",
        "-c",
        f"echo rank $HOROVOD_RANK trains in process $$; while ! [ -e {tmp_path}/end ]; do sleep 0.1; done",
    ]
    with WatchedJob(tmp_path, 2, command=command) as job:
        job.wait_for_ranks()
        done = horovodrun("--stacks", str(job.process.pid))
        assert done.returncode == 0 and "do not report" in done.stdout
        job.said("SIGQUIT")
        assert job.finish() == 0, job.err


def test_metrics_of_all_ranks_for_prometheus(tmp_path):
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    with WatchedJob(tmp_path, 2, "--metrics-port", "0") as job:
        job.wait_for_ranks()
        address = job.said(r"metrics: (http://127.0.0.1:\d+/metrics)")[1]

        def values():
            wanted = urllib.request.Request(address, headers={"Accept": "application/openmetrics-text"})
            with urllib.request.urlopen(wanted, timeout=60) as answer:
                assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
                text = answer.read().decode()
            families = parser.text_string_to_metric_families(text)
            return {(one.name, one.labels.get("rank")): one.value for f in families for one in f.samples}

        def both_have_reduced():
            found = values()
            return all(found.get(("horovod_bytes_total", rank), 0) > 0 for rank in "01")

        until(both_have_reduced, "both ranks have reduced something")
        found = values()
        assert found["horovod_up", "0"] == found["horovod_up", "1"] == 1
        assert found["horovod_tensors_total", "0"] > 0 and found["horovod_memory_bytes", "0"] > 1e6
        assert found["horovod_ranks", None] == 2
        assert job.finish() == 0, job.err


def test_metrics_without_prometheus_client_say_what_to_install(tmp_path):
    (tmp_path / "prometheus_client.py").write_text("raise ImportError('not here')")
    env = environment(PYTHONPATH=f"{tmp_path}:{environment()['PYTHONPATH']}")
    done = horovodrun("-np", "1", "--metrics-port", "0", "true", env=env)
    assert done.returncode == 1
    assert done.stderr == (
        "horovodrun: --metrics-port needs prometheus_client: pip install 'horovod[metrics]'\n"
    )


def test_a_port_in_use_is_an_error_before_anything_runs(tmp_path):
    with WatchedJob(tmp_path, 1, "--dashboard") as job:
        port = job.address().split(":")[2].split("/")[0]
        done = horovodrun("-np", "1", f"--dashboard={port}", "echo", "started")
        assert done.returncode == 1 and done.stdout == ""
        assert f"--dashboard: cannot listen on 127.0.0.1 port {port}" in done.stderr
        assert job.finish() == 0, job.err


def test_an_elastic_job_is_shown_with_what_happens_to_it(tmp_path):
    script = ["--wait-for", str(tmp_path / "never")]
    with ElasticRun(
        tmp_path, ["localhost:2"], "-np", "2", "--min-np", "1", "--dashboard", script=script
    ) as job:
        job.wait_for("train", count=2, size=2)
        job.wait_for_line("?token=")
        address = next(line for line in job.errors if "?token=" in line).split("dashboard: ")[1]
        page = Visitor(address)
        assert page.enter() == 303
        page.wait_for(lambda view: view["totals"]["ranks"] == 2 and all(one["pid"] for one in view["ranks"]))
        job.kill(1)
        page.wait_for(
            lambda view: view["generation"] > 1 and [one["rank"] for one in view["ranks"]] == [0, 1]
        )
        events = {event["kind"]: event["text"] for event in page.wait_for(lambda view: True)["events"]}
        assert "rank 1 on localhost" in events["lost"], events


def test_horovod_run_has_the_same_page(tmp_path):
    code = f"""
        import sys
        import horovod

        def train():
            import runpy
            sys.argv = ["watched.py", "--until", {str(tmp_path / "end")!r}]
            runpy.run_path({os.path.join(os.path.dirname(__file__), "../scripts/watched.py")!r})
            return 7

        assert horovod.run(train, num_proc=2, dashboard=True) == [7, 7]
        """
    script = tmp_path / "call.py"
    script.write_text(textwrap.dedent(code))
    with WatchedJob(tmp_path, 2, launcher=[sys.executable, str(script)], command=["unused"]) as job:
        job.wait_for_ranks()
        view = visitor(job).wait_for(lambda view: all(one["pid"] for one in view["ranks"]))
        assert [one["rank"] for one in view["ranks"]] == [0, 1]
        assert job.finish() == 0, job.err
