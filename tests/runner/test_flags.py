# SPDX-License-Identifier: Apache-2.0
"""The command line of horovodrun: every flag, and errors that name the fix."""

from __future__ import annotations

import sys
import warnings

import pytest

from horovod.common import config
from horovod.runner import flags, launch

JOB = ["-np", "2"]
COMMAND = ["python", "train.py", "--lr", "0.1"]


def parse(*words):
    return flags.parse([*JOB, *words, *COMMAND])


def test_defaults():
    args = parse()
    assert args.num_proc == 2 and args.command == COMMAND
    assert args.start_timeout == 30 and args.elastic_timeout == 600
    unset = (
        "nics output_filename config_file ssh_port ssh_identity_file fusion_threshold_mb cycle_time_ms "
        "cache_capacity hierarchical_allreduce autotune timeline_filename no_stall_check min_num_proc "
        "max_num_proc slots reset_limit cooldown_range mpi_args binding_args log_level log_with_timestamp "
        "hosts hostfile host_discovery_script run_func executable"
    )
    assert {name: getattr(args, name) for name in unset.split()} == dict.fromkeys(unset.split())
    off = (
        "check_build check disable_cache verbose tcp_flag use_gloo use_mpi use_jsrun "
        "prefix_output_with_timestamp"
    )
    assert {name: getattr(args, name) for name in off.split()} == dict.fromkeys(off.split(), False)
    assert config.env_of(vars(args)) == {}


# words, attribute, value, exported environment
GRID = [
    (["--disable-cache"], "disable_cache", True, {}),
    (["--start-timeout", "7"], "start_timeout", 7, {}),
    (["--network-interfaces", "eth0,eth1", "--network-interface", "ib0"], "nics",
     {"eth0", "eth1", "ib0"}, {}),
    (["--output-filename", "/tmp/x"], "output_filename", "/tmp/x", {}),
    (["--verbose"], "verbose", True, {}),
    (["-p", "2222"], "ssh_port", 2222, {}),
    (["--ssh-port", "2222"], "ssh_port", 2222, {}),
    (["-i", "key"], "ssh_identity_file", "key", {}),
    (["--fusion-threshold-mb", "10"], "fusion_threshold_mb", 10, {"HOROVOD_FUSION_THRESHOLD": str(10 << 20)}),
    (["--fusion-threshold-mb", "0"], "fusion_threshold_mb", 0, {"HOROVOD_FUSION_THRESHOLD": "0"}),
    (["--cycle-time-ms", "20.5"], "cycle_time_ms", 20.5, {"HOROVOD_CYCLE_TIME": "20.5"}),
    (["--cache-capacity", "512"], "cache_capacity", 512, {"HOROVOD_CACHE_CAPACITY": "512"}),
    (["--hierarchical-allreduce"], "hierarchical_allreduce", True, {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}),
    (["--no-hierarchical-allreduce"], "hierarchical_allreduce", False,
     {"HOROVOD_HIERARCHICAL_ALLREDUCE": "0"}),
    (["--hierarchical-allgather"], "hierarchical_allgather", True, {"HOROVOD_HIERARCHICAL_ALLGATHER": "1"}),
    (["--no-hierarchical-allgather"], "hierarchical_allgather", False,
     {"HOROVOD_HIERARCHICAL_ALLGATHER": "0"}),
    (["--torus-allreduce"], "torus_allreduce", True, {"HOROVOD_TORUS_ALLREDUCE": "1"}),
    (["--no-torus-allreduce"], "torus_allreduce", False, {"HOROVOD_TORUS_ALLREDUCE": "0"}),
    (["--autotune"], "autotune", True, {"HOROVOD_AUTOTUNE": "1"}),
    (["--no-autotune"], "autotune", False, {}),
    (["--autotune-log-file", "x"], "autotune_log_file", "x", {}),
    (["--autotune", "--autotune-log-file", "x"], "autotune_log_file", "x",
     {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_LOG": "x"}),
    (["--autotune", "--autotune-warmup-samples", "1"], "autotune_warmup_samples", 1,
     {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1"}),
    (["--autotune", "--autotune-steps-per-sample", "5"], "autotune_steps_per_sample", 5,
     {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "5"}),
    (["--autotune", "--autotune-bayes-opt-max-samples", "10"], "autotune_bayes_opt_max_samples", 10,
     {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "10"}),
    (["--autotune", "--autotune-gaussian-process-noise", "0.2"], "autotune_gaussian_process_noise", 0.2,
     {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.2"}),
    (["--timeline-filename", "t.json"], "timeline_filename", "t.json", {"HOROVOD_TIMELINE": "t.json"}),
    (["--timeline-mark-cycles"], "timeline_mark_cycles", True, {}),
    (["--timeline-filename", "t", "--timeline-mark-cycles"], "timeline_mark_cycles", True,
     {"HOROVOD_TIMELINE": "t", "HOROVOD_TIMELINE_MARK_CYCLES": "1"}),
    (["--no-stall-check"], "no_stall_check", True, {"HOROVOD_STALL_CHECK_DISABLE": "1"}),
    (["--stall-check"], "no_stall_check", False, {"HOROVOD_STALL_CHECK_DISABLE": "0"}),
    (["--mpi-threads-disable"], "mpi_threads_disable", True, {"HOROVOD_MPI_THREADS_DISABLE": "1"}),
    (["--no-mpi-threads-disable"], "mpi_threads_disable", False, {"HOROVOD_MPI_THREADS_DISABLE": "0"}),
    (["--num-nccl-streams", "2"], "num_nccl_streams", 2, {"HOROVOD_NUM_NCCL_STREAMS": "2"}),
    (["--gloo-timeout-seconds", "60"], "gloo_timeout_seconds", 60, {"HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}),
    (["--log-level", "DEBUG"], "log_level", "DEBUG", {"HOROVOD_LOG_LEVEL": "DEBUG"}),
    (["--log-with-timestamp"], "log_with_timestamp", True, {"HOROVOD_LOG_HIDE_TIME": "0"}),
    (["--log-without-timestamp"], "log_with_timestamp", False, {"HOROVOD_LOG_HIDE_TIME": "1"}),
    (["-prefix-timestamp"], "prefix_output_with_timestamp", True, {}),
    (["--prefix-output-with-timestamp"], "prefix_output_with_timestamp", True, {}),
    (["-H", "a:2,b:2"], "hosts", "a:2,b:2", {}),
    (["--hosts", "a:2"], "hosts", "a:2", {}),
    (["-hostfile", "f"], "hostfile", "f", {}),
    (["--hostfile", "f"], "hostfile", "f", {}),
    (["--host-discovery-script", "f"], "host_discovery_script", "f", {}),
    (["--min-np", "2"], "min_num_proc", 2, {}),
    (["--min-num-proc", "2"], "min_num_proc", 2, {}),
    (["--max-np", "4"], "max_num_proc", 4, {}),
    (["--max-num-proc", "4"], "max_num_proc", 4, {}),
    (["--slots-per-host", "4"], "slots", 4, {}),
    (["--elastic-timeout", "5"], "elastic_timeout", 5, {}),
    (["--reset-limit", "5"], "reset_limit", 5, {}),
    (["--blacklist-cooldown-range", "1", "5"], "cooldown_range", [1, 5], {}),
    (["--gloo"], "use_gloo", True, {}),
    (["--mpi"], "use_mpi", True, {}),
    (["--jsrun"], "use_jsrun", True, {}),
    (["--mpi-args=--oversubscribe -x A"], "mpi_args", "--oversubscribe -x A", {}),
    (["--binding-args=-bind-to core"], "binding_args", "-bind-to core", {}),
    (["--tcp"], "tcp_flag", True, {}),
]  # fmt: skip


@pytest.mark.parametrize("words, name, value, env", GRID, ids=[" ".join(row[0]) for row in GRID])
def test_flag(words, name, value, env):
    args = parse(*words)
    assert getattr(args, name) == value
    assert args.command == COMMAND
    assert config.env_of(vars(args)) == env
    exported = launch.job_env(args, base={})
    assert exported == ({"NCCL_IB_DISABLE": "1"} if name == "tcp_flag" else env)


@pytest.mark.parametrize(
    "flag", ["--stall-check-warning-time-seconds", "--stall-check-shutdown-time-seconds"]
)
def test_stall_times_are_numbers(flag):
    env = config.env_of(vars(parse(flag, "10")))
    assert [float(value) for value in env.values()] == [10.0]


NOT_NEGATIVE = ["--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity", "--num-nccl-streams",
                "--gloo-timeout-seconds", "--autotune-warmup-samples", "--autotune-steps-per-sample",
                "--autotune-bayes-opt-max-samples", "--stall-check-warning-time-seconds",
                "--stall-check-shutdown-time-seconds"]  # fmt: skip


@pytest.mark.parametrize("flag", NOT_NEGATIVE)
def test_negative_values_are_refused(flag):
    name = flag[2:].replace("-", "_")
    with pytest.raises(ValueError, match=f"{name}=-1.* must be >= 0"):
        parse(f"{flag}=-1")


@pytest.mark.parametrize("noise", ["-0.1", "1.1"])
def test_noise_has_a_range(noise):
    with pytest.raises(ValueError, match=r"autotune_gaussian_process_noise=.* must be in \[0, 1\]"):
        parse(f"--autotune-gaussian-process-noise={noise}")


EXCLUSIVE = [["-H", "a:1", "--hostfile", "f"], ["--gloo", "--mpi"], ["--mpi", "--jsrun"],
             ["--log-with-timestamp", "--log-without-timestamp"],
             ["--log-with-timestamp", "-prefix-timestamp"],
             ["--hierarchical-allreduce", "--no-hierarchical-allreduce"],
             ["--torus-allreduce", "--no-torus-allreduce"],
             ["--hierarchical-allgather", "--no-hierarchical-allgather"],
             ["-H", "a:1", "--host-discovery-script", "f"]]  # fmt: skip


@pytest.mark.parametrize("words", EXCLUSIVE, ids=" ".join)
def test_contradictions_are_refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(*words)
    assert ended.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_an_unknown_flag_gets_a_suggestion(capsys):
    with pytest.raises(SystemExit) as ended:
        flags.parse(["-np", "2", "--fusion-treshold-mb", "3", "python"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "Did you mean --fusion-threshold-mb?" in error and "go after the command" in error


@pytest.mark.parametrize(
    "words, message",
    [
        (["--log-level", "debug"], "argument --log-level: invalid choice: 'debug'"),
        (["--cycle-time-ms", "abc"], "argument --cycle-time-ms: invalid float value: 'abc'"),
        (["--hier"], "ambiguous option: --hier could match --hierarchical-allreduce"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_flags_that_exist_get_no_suggestion(words, message, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(*words)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error and "Did you mean" not in error and "See horovodrun --help" in error


@pytest.mark.parametrize("np", ["0", "-3"])
def test_np_must_be_positive(np, capsys):
    with pytest.raises(SystemExit):
        flags.parse(["-np", np, "python"])
    assert "-np must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "old, new, value",
    [
        ("--log-hide-timestamp", "--log-without-timestamp", False),
        ("--no-log-hide-timestamp", "--log-with-timestamp", True),
    ],
)
def test_renamed_flags_still_work_and_warn(old, new, value):
    with pytest.warns(DeprecationWarning, match=f"Argument {old} has been replaced by {new}"):
        assert parse(old).log_with_timestamp is value


def test_a_list_for_the_single_interface_flag_warns():
    with pytest.warns(DeprecationWarning, match="--network-interfaces"):
        assert parse("--network-interface", "a,b").nics == {"a", "b"}


def test_np_is_required_outside_of_allocations(monkeypatch, capsys):
    for name in ("LSB_JOBID", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["horovodrun", "python", "x.py"])
    with pytest.raises(SystemExit) as ended:
        launch.parse_args()
    assert ended.value.code == 2 and "Give -np" in capsys.readouterr().err
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "2(x2)")
    assert launch.parse_args().num_proc is None


def test_help_is_grouped_and_names_every_flag(capsys):
    with pytest.raises(SystemExit) as ended, warnings.catch_warnings():
        flags.parse(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for heading in ("job:", "hosts:", "output:", "elastic:", "launchers:"):
        assert f"\n{heading}" in text
    for setting in config.SETTINGS:
        if setting.flag and setting.name != "log_hide_time":
            assert setting.flag in text
