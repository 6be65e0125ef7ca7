# SPDX-License-Identifier: Apache-2.0
"""The settings of a job: one table from which everything else follows.

A row (setting.py) gives a setting's environment variable, its `horovodrun` flag, its place in the YAML file
of `--config-file`, its `horovod.run` argument (the flag's name with underscores) and its text. All four ways
mean the same and are checked alike: they end as the environment variable of the workers, which `hvd.init()`
hands to the engine. The reference in docs/settings.md is generated from this table by
scripts/generate_settings.py.

Settings of the original that have nothing to do here are rows too, and stand in one list, DOES_NOTHING, which
says why. To make one work, take it off that list.
"""

from __future__ import annotations

import argparse
import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from horovod.common.setting import Setting

MEBIBYTE = 1 << 20
LOG_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")

# fmt: off
SETTINGS: Tuple[Setting, ...] = (
    Setting("fusion_threshold", "HOROVOD_FUSION_THRESHOLD", int, 128 * MEBIBYTE,
            "Tensors that are ready together are reduced together up to this many bytes; 0: each alone.",
            "params", "--fusion-threshold-mb", "fusion_threshold_mb", scale=MEBIBYTE, minimum=0),
    Setting("cycle_time", "HOROVOD_CYCLE_TIME", float, 0.0,
            "Minimum time in milliseconds between two batches. The engine works without a cycle; set this "
            "only to trade latency for larger batches.",
            "params", "--cycle-time-ms", "cycle_time_ms", minimum=0),
    Setting("cache_capacity", "HOROVOD_CACHE_CAPACITY", int, 1024,
            "How many tensor descriptions each rank remembers, to send a number instead of a description; 0 "
            "turns the cache off.",
            "params", "--cache-capacity", "cache_capacity", minimum=0),
    Setting("hierarchical_allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", bool, False,
            "Reduce over the ranks of each host first, then between the hosts.",
            "params", "--hierarchical-allreduce", "hierarchical_allreduce", engine=False),
    Setting("hierarchical_allgather", "HOROVOD_HIERARCHICAL_ALLGATHER", bool, False,
            "Gather over the ranks of each host first, then between the hosts.",
            "params", "--hierarchical-allgather", "hierarchical_allgather", engine=False),
    Setting("torus_allreduce", "HOROVOD_TORUS_ALLREDUCE", bool, False,
            "Reduce over rows, then columns, of ranks.",
            "params", "--torus-allreduce", "torus_allreduce", engine=False),
    Setting("disable_group_fusion", "HOROVOD_DISABLE_GROUP_FUSION", bool, False,
            "Reduce the tensors of a grouped operation only with each other.", "params"),
    Setting("autotune", "HOROVOD_AUTOTUNE", bool, False,
            "Search for better values of some settings during the first steps: fusion threshold, cycle time, "
            "chunk_bytes, small_bytes, spin_us, gpu_direct_bytes. Those that are set stay as they are.",
            "autotune", "--autotune", "enabled"),
    Setting("autotune_log", "HOROVOD_AUTOTUNE_LOG", str, "",
            "File for what the search tried, written by rank 0.",
            "autotune", "--autotune-log-file", "log_file", needs="autotune"),
    Setting("autotune_output", "HOROVOD_AUTOTUNE_OUTPUT", str, "",
            "File for what the search found, written by rank 0 at its end; --config-file takes it.",
            "autotune", "--autotune-output-file", "output_file", needs="autotune"),
    Setting("autotune_start", "HOROVOD_AUTOTUNE_START", str, "",
            "Where the search starts, if not from the defaults, e.g. fusion_threshold=4194304,spin_us=50; "
            "unlike what is set otherwise, these may change.",
            "autotune", "--autotune-start", "start", needs="autotune"),
    Setting("autotune_warmup_samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", int, 3,
            "Samples to leave out at the start of the search.",
            "autotune", "--autotune-warmup-samples", "warmup_samples", minimum=0, needs="autotune"),
    Setting("autotune_steps_per_sample", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", int, 10,
            "Steps of training for one sample, which counts by their median; 0 is taken as 1.",
            "autotune", "--autotune-steps-per-sample", "steps_per_sample", minimum=0, needs="autotune"),
    Setting("autotune_bayes_opt_max_samples", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", int, 20,
            "Most samples of the search, before its best is compared with the start; 0: no search.",
            "autotune", "--autotune-bayes-opt-max-samples", "bayes_opt_max_samples", minimum=0,
            needs="autotune"),
    Setting("autotune_gaussian_process_noise", "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", float, 0.8,
            "Noise that the search assumes in its samples, from 0 to 1, as a share of their variance.",
            "autotune", "--autotune-gaussian-process-noise", "gaussian_process_noise", minimum=0, maximum=1,
            needs="autotune"),
    Setting("timeline", "HOROVOD_TIMELINE", str, "",
            "File for a Chrome trace of every tensor; rank 3 writes timeline.rank3.json beside it. DYNAMIC "
            "waits for start_timeline.",
            "timeline", "--timeline-filename", "filename"),
    Setting("timeline_mark_cycles", "HOROVOD_TIMELINE_MARK_CYCLES", bool, False,
            "Mark in the timeline where each batch starts.",
            "timeline", "--timeline-mark-cycles", "mark_cycles", needs="timeline"),
    Setting("timeline_max_bytes", "HOROVOD_TIMELINE_MAX_BYTES", int, 256 * MEBIBYTE,
            "Size at which a rank's timeline gives up its older half; 0 for no limit.",
            "timeline", minimum=0),
    Setting("stall_check_disable", "HOROVOD_STALL_CHECK_DISABLE", bool, False,
            "Do not watch for tensors that some ranks submitted and others did not.",
            "stall_check", "--no-stall-check", "enabled", inverted="yaml"),
    Setting("stall_check_time_seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS", float, 60,
            "Warn when a tensor has waited this long for some ranks; the warning names them. 0: do not.",
            "stall_check", "--stall-check-warning-time-seconds", "warning_time_seconds", minimum=0),
    Setting("stall_shutdown_time_seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", float, 0,
            "Fail the job when a tensor has waited this long; 0 waits for ever.",
            "stall_check", "--stall-check-shutdown-time-seconds", "shutdown_time_seconds", minimum=0),
    Setting("flight_recorder", "HOROVOD_FLIGHT_RECORDER", str, "",
            "Folder for what the ranks did last, written when the job fails or stalls: a line of JSON for "
            "each rank. By default the folder for temporary files; off for none.",
            "stall_check"),
    Setting("mpi_threads_disable", "HOROVOD_MPI_THREADS_DISABLE", bool, False,
            "Use MPI without its support for threads.",
            "library_options", "--mpi-threads-disable", "mpi_threads_disable", engine=False),
    Setting("num_nccl_streams", "HOROVOD_NUM_NCCL_STREAMS", int, 0,
            "How many NCCL communicators, each with a stream, large GPU tensors are spread over, at most 8. "
            "0: up to 4 where NCCL has only sockets between all ranks, else 1.",
            "library_options", "--num-nccl-streams", "num_nccl_streams", minimum=0),
    Setting("gpu_operations", "HOROVOD_GPU_OPERATIONS", str, "auto",
            "Which way GPU tensors go: NCCL, direct (ranks of one host map each other's memory), host "
            "(through pinned host memory), or auto, which takes the best that is there.", "library_options",
            choices=("auto", "nccl", "direct", "host")),
    Setting("gpu_direct_bytes", "HOROVOD_GPU_DIRECT_BYTES", int, MEBIBYTE,
            "Where GPU tensors can go both ways, batches up to this many bytes go the direct one and larger "
            "ones over NCCL.", "tuning", "--gpu-direct-bytes", "gpu_direct_bytes", minimum=0),
    Setting("cuda_library", "HOROVOD_CUDA_LIBRARY", str, "libcuda.so.1",
            "The NVIDIA driver's library.", "library_options"),
    Setting("nvtx_library", "HOROVOD_NVTX_LIBRARY", str, "",
            "Collectives are ranges of this library for NVIDIA's profilers; empty takes that of the "
            "nvidia-nvtx wheel or the system where a profiler listens (NVTX_INJECTION64_PATH).",
            "library_options"),
    Setting("disable_nvtx_ranges", "HOROVOD_DISABLE_NVTX_RANGES", bool, False,
            "No NVTX ranges, also where a profiler listens.", "library_options", engine=False),
    Setting("nccl_library", "HOROVOD_NCCL_LIBRARY", str, "",
            "NCCL's library, if the framework has not loaded one; empty takes the nvidia-nccl wheel's, else "
            "the system's.", "library_options"),
    Setting("thread_affinity", "HOROVOD_THREAD_AFFINITY", str, "",
            "Cores for the engine's thread: a comma list, one entry for each rank of the host.",
            "library_options", "--thread-affinity", "thread_affinity"),
    Setting("gloo_timeout_seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", int, 30,
            "How long hvd.init() waits for the other ranks.",
            "library_options", "--gloo-timeout-seconds", "gloo_timeout_seconds", minimum=0, engine=False),
    Setting("network_timeout_seconds", "HOROVOD_NETWORK_TIMEOUT_SECONDS", int, 30,
            "How long another host may be silent before it counts as lost, in seconds: shorter outages of "
            "the network are endured, by the launcher as well as by the ranks.",
            "library_options", "--network-timeout-seconds", "network_timeout_seconds", minimum=1,
            maximum=32767),
    Setting("link_security", "HOROVOD_LINK_SECURITY", str, "control",
            "What is protected between hosts, beside the handshake of every connection: control (the "
            "messages that order the work), integrity (data too: none of it can be altered unnoticed) or "
            "encrypt (nor read).", "library_options", "--link-security", "link_security",
            choices=("control", "integrity", "encrypt")),
    Setting("crypto_library", "HOROVOD_CRYPTO_LIBRARY", str, "",
            "Path of OpenSSL's libcrypto; empty takes the one Python has loaded, else the system's.",
            "library_options"),
    Setting("gloo_iface", "HOROVOD_GLOO_IFACE", str, "",
            "Network interface for the traffic between hosts, e.g. eth1; empty takes the one that leads to "
            "the launcher.", "library_options", engine=False),
    Setting("tcp_congestion", "HOROVOD_TCP_CONGESTION", str, "auto",
            "How TCP between the ranks finds its speed: auto (as the system says; but reno instead of bbr "
            "where the other is less than 1 ms away), system, or one of those in "
            "/proc/sys/net/ipv4/tcp_allowed_congestion_control, e.g. dctcp.",
            "library_options", engine=False),
    Setting("adasum_chunk_size", "HOROVOD_ADASUM_MPI_CHUNK_SIZE", int, 1 << 30,
            "Most bytes that Adasum works on at a time.", "library_options", minimum=1, engine=False),
    Setting("dynamic_process_sets", "HOROVOD_DYNAMIC_PROCESS_SETS", bool, False,
            "Allow hvd.add_process_set and hvd.remove_process_set after hvd.init().",
            "process_sets", engine=False),
    Setting("check_weights", "HOROVOD_CHECK_WEIGHTS", bool, True,
            "Compare the ranks' weights once, after the first step of a distributed optimizer, and warn if "
            "they differ.", "params", engine=False),
    Setting("controller", "HOROVOD_CONTROLLER", str, "",
            "Who carries the control messages: gloo or mpi.", "library_options", choices=("gloo", "mpi"),
            engine=False),
    Setting("cpu_operations", "HOROVOD_CPU_OPERATIONS", str, "",
            "Who carries the data between hosts: gloo (this package's own sockets, the default) or mpi.",
            "library_options", choices=("gloo", "mpi")),
    Setting("shm_slot_bytes", "HOROVOD_SHM_SLOT_BYTES", int, 1 << 20,
            "Size of one staging buffer of a rank in the host's shared memory, in bytes.", "tuning",
            minimum=16 << 10, maximum=1 << 30),
    Setting("chunk_bytes", "HOROVOD_CHUNK_BYTES", int, 0,
            "Size of the pieces that large reductions and broadcasts are cut into, in bytes; 0: a staging "
            "buffer's, and 512 KiB where two ranks of one host are alone. Staging buffers grow with it.",
            "tuning", "--chunk-bytes", "chunk_bytes", minimum=0, maximum=1 << 30),
    Setting("small_bytes", "HOROVOD_SMALL_BYTES", int, 16 << 10,
            "Reductions up to this many bytes take one round, in which every rank (between hosts: every "
            "host) gets all of the data, instead of two.",
            "tuning", "--small-bytes", "small_bytes", minimum=0, maximum=1 << 30),
    Setting("output_pool_bytes", "HOROVOD_OUTPUT_POOL_BYTES", int, 256 * MEBIBYTE,
            "Memory of large results that were let go of is kept for the next ones, up to this many bytes in "
            "each process, and given to the system when it runs short; 0 keeps none.", "tuning", minimum=0),
    Setting("heap_keep_bytes", "HOROVOD_HEAP_KEEP_BYTES", int, 128 * MEBIBYTE,
            "Memory that a training step on a CPU frees stays in the process for the next step, up to this "
            "many bytes at the end of glibc's heap, once there is a distributed optimizer of PyTorch; 0 "
            "leaves the heap alone, as do glibc's own variables, such as MALLOC_TRIM_THRESHOLD_.",
            "tuning", minimum=0, maximum=(1 << 31) - 1, engine=False),
    Setting("spin_us", "HOROVOD_SPIN_US", float, -1.0,
            "How long a waiting thread spins before it sleeps, in microseconds; -1 chooses by the number of "
            "ranks and cores of the host.", "tuning", "--spin-us", "spin_us", minimum=-1, maximum=1000000),
    Setting("log_level", "HOROVOD_LOG_LEVEL", str, "warning",
            "Least important message to print: trace, debug, info, warning, error or fatal.",
            "logging", "--log-level", "level", choices=LOG_LEVELS, tolerant=True),
    Setting("log_hide_time", "HOROVOD_LOG_HIDE_TIME", bool, False,
            "Print log messages without the time.",
            "logging", "--log-without-timestamp", "with_timestamp", inverted="flag yaml"),
    Setting("observe", "HOROVOD_OBSERVE", bool, False,
            "Ranks tell the launcher once a second what they do, so that `horovodrun --stacks` can ask them "
            "at any time; --dashboard, --top and --metrics-port set it.",
            "logging", "--observe", "observe", engine=False),
    Setting("start_timeout", "HOROVOD_START_TIMEOUT", int, 30,
            "How long the launcher waits for all ranks to start, in seconds.",
            "launcher", "--start-timeout", minimum=0, engine=False),
    Setting("elastic_timeout", "HOROVOD_ELASTIC_TIMEOUT", int, 600,
            "How long an elastic job waits for enough hosts, in seconds.",
            "launcher", "--elastic-timeout", minimum=0, engine=False),
)
# fmt: on
BY_NAME: Dict[str, Setting] = {s.name: s for s in SETTINGS}
BY_DEST: Dict[str, Setting] = {s.dest: s for s in SETTINGS if s.flag}

# Accepted for compatibility, do nothing, because ...
DOES_NOTHING: Dict[str, str] = {
    "hierarchical_allreduce": "reductions over several hosts are always hierarchical",
    "hierarchical_allgather": "gathers over several hosts are always hierarchical",
    "torus_allreduce": "reductions over several hosts already use every column of ranks",
    "adasum_chunk_size": "Adasum needs no chunks",
    "controller": "this package's own sockets carry the control messages, whoever started the ranks",
}


def description(setting: Setting) -> str:
    """What a setting does, or why it does nothing."""
    if setting.name not in DOES_NOTHING:
        return setting.help
    return f"Accepted for compatibility, does nothing: {DOES_NOTHING[setting.name]}"


def get(name: str, environ: Optional[Mapping[str, str]] = None) -> Any:
    """The value of a setting in this process: its environment variable's, or the default.

    Raises:
        ValueError: the variable's text is wrong; names the variable, the text and what is expected.
    """
    setting = BY_NAME[name]
    text = (os.environ if environ is None else environ).get(setting.env)
    return setting.default if text is None else setting.parse(text)


def usable(name: str, environ: Optional[Mapping[str, str]] = None) -> Any:
    """As `get`, but the default where the text is wrong: for what is needed to tell others of the mistake."""
    try:
        return get(name, environ)
    except ValueError:
        return BY_NAME[name].default


def check(environ: Optional[Mapping[str, str]] = None) -> None:
    """Raises ValueError if any setting's variable is wrong."""
    for setting in SETTINGS:
        get(setting.name, environ)


def engine_settings(environ: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """What the engine is told at init: name -> text, for all settings it knows. Checks all the others too."""
    check(environ)
    given = {s.name: s.text(get(s.name, environ)) for s in SETTINGS if s.engine}
    given["autotune_fixed"] = ",".join(explicit(environ))
    return given


def explicit(environ: Optional[Mapping[str, str]] = None) -> List[str]:
    """The names of the settings that somebody has set: what autotune leaves alone."""
    variables = os.environ if environ is None else environ
    return [s.name for s in SETTINGS if variables.get(s.env, "").strip()]


def env_of(values: Mapping[str, Any], base: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The workers' environment variables from flag-named values, None meaning "not given".

    Takes `vars(parsed_arguments)` or the keyword arguments of `horovod.run`; other keys are ignored. `base`
    is the environment they are added to: what is on there need not be given again, and can be switched off.

    Raises:
        ValueError: a value is out of range.
    """
    given = {s.name: s.from_flag(values[d]) for d, s in BY_DEST.items() if values.get(d) is not None}
    given = {n: v for n, v in given.items() if BY_NAME[n].section != "launcher"}
    return _exported(given, base or {})


def flags_of_yaml(document: Mapping[str, Any]) -> Dict[str, Any]:
    """Flag-named values from the `--config-file` document; flags on the command line win over these."""
    values: Dict[str, Any] = {}
    for setting in SETTINGS:
        section = document.get(setting.section)
        if not setting.yaml or not isinstance(section, Mapping):
            continue
        if setting.yaml in section and section[setting.yaml] is not None:
            value = setting.from_yaml(section[setting.yaml])  # names the file's key if it is wrong
            if setting.type is bool:  # both sides may be inverted; the flag wants its own sense
                value = value != ("flag" in setting.inverted.split())
            values[setting.dest] = value if setting.scale == 1 else value / setting.scale
    return values


def _exported(given: Mapping[str, Any], base: Mapping[str, str]) -> Dict[str, str]:
    env: Dict[str, str] = {}
    for name, value in given.items():
        setting = BY_NAME[name]
        if setting.needs and not given.get(setting.needs, usable(setting.needs, base)):
            continue
        if name == "autotune" and not value and setting.env not in base:
            continue
        env[setting.env] = setting.text(value)
    return env


def add_arguments(parser: argparse.ArgumentParser, skip: Iterable[str] = ()) -> None:
    """Adds the table's flags to a parser, in a group for each section; `skip` names settings to leave out."""
    skipped = set(skip)
    sections: Dict[str, List[Setting]] = {}
    for setting in SETTINGS:
        if setting.flag and setting.section != "launcher" and setting.name not in skipped:
            sections.setdefault(setting.section, []).append(setting)
    for section, settings in sections.items():
        group = parser.add_argument_group(f"{section.replace('_', ' ')} arguments")
        for setting in settings:
            add_argument(group, setting)


def add_argument(container: Any, setting: Setting) -> None:
    """Adds one setting's flag, and its opposite if it is boolean, to a parser or group."""
    text = description(setting).replace("%", "%%")
    if setting.type is not bool:
        kind = int if setting.scale != 1 else setting.type
        choices = setting.choices or None
        container.add_argument(
            setting.flag, dest=setting.dest, type=kind, default=None, choices=choices, help=text
        )
        return
    positive = "flag" not in setting.inverted.split()
    opposite = _opposite(setting.flag)
    pair = container.add_mutually_exclusive_group()
    pair.add_argument(
        setting.flag, dest=setting.dest, action="store_const", const=positive, default=None, help=text
    )
    shown = "" if "allreduce" in setting.name or "allgather" in setting.name else argparse.SUPPRESS
    shown = shown or f"Not {setting.flag}."
    pair.add_argument(opposite, dest=setting.dest, action="store_const", const=not positive, help=shown)


def _opposite(flag: str) -> str:
    if flag == "--log-without-timestamp":
        return "--log-with-timestamp"
    return "--" + flag[5:] if flag.startswith("--no-") else "--no-" + flag[2:]
