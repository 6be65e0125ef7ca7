# SPDX-License-Identifier: Apache-2.0
"""horovodrun --config-file: what the file says holds unless a flag says otherwise."""

from __future__ import annotations

import pytest

from horovod.common import config
from horovod.runner import flags


def parse(*words):
    return flags.parse(["-np", "2", *words, "python", "train.py"])


CONFIG = """
controller: mpi
params: {fusion_threshold_mb: 32, cycle_time_ms: 50, cache_capacity: 2048, hierarchical_allreduce: true,
         hierarchical_allgather: true, torus_allreduce: false}
autotune: {enabled: true, log_file: a.txt, warmup_samples: 5, steps_per_sample: 20, bayes_opt_max_samples: 50,
           gaussian_process_noise: 0.9}
timeline: {filename: t.json, mark_cycles: true}
stall_check: {enabled: false, warning_time_seconds: 120, shutdown_time_seconds: 240}
library_options: {mpi_threads_disable: true, num_nccl_streams: 2, thread_affinity: 1,
                  gloo_timeout_seconds: 60}
logging: {level: INFO, with_timestamp: false}
something_unknown: {a: 1}
"""


def test_the_config_file_fills_in_what_flags_leave_open(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    args = parse("--config-file", str(path), "--cycle-time-ms", "10", "--no-hierarchical-allreduce", "--gloo")
    assert args.use_gloo and not args.use_mpi
    env = config.env_of(vars(args))
    assert float(env.pop("HOROVOD_STALL_CHECK_TIME_SECONDS")) == 120
    assert float(env.pop("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS")) == 240
    assert env == {
        "HOROVOD_FUSION_THRESHOLD": str(32 << 20),
        "HOROVOD_CYCLE_TIME": "10.0",
        "HOROVOD_CACHE_CAPACITY": "2048",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "0",
        "HOROVOD_HIERARCHICAL_ALLGATHER": "1",
        "HOROVOD_TORUS_ALLREDUCE": "0",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_AUTOTUNE_LOG": "a.txt",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "5",
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "20",
        "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "50",
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.9",
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_MPI_THREADS_DISABLE": "1",
        "HOROVOD_NUM_NCCL_STREAMS": "2",
        "HOROVOD_THREAD_AFFINITY": "1",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "60",
        "HOROVOD_LOG_LEVEL": "INFO",
        "HOROVOD_LOG_HIDE_TIME": "1",
    }
    assert parse("--config-file", str(path)).use_mpi


@pytest.mark.parametrize(
    "text, message",
    [
        ("controller: smoke", "No such controller supported: smoke"),
        ("params: {cycle_time_ms: -1}", "must be >= 0"),
    ],
)
def test_wrong_values_in_the_config_file(tmp_path, text, message):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        parse("--config-file", str(path))


@pytest.mark.parametrize(
    "text, message", [("[1, 2]", "must hold sections"), ("a: [", "is not YAML"), (None, "cannot read")]
)
def test_unusable_config_files(tmp_path, capsys, text, message):
    path = tmp_path / "config.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit):
        parse("--config-file", str(path))
    assert message in capsys.readouterr().err
