# SPDX-License-Identifier: Apache-2.0
"""horovod.run: call a Python function on every rank of a job and get the results back."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

if TYPE_CHECKING:
    from horovod.rendezvous.store_server import StoreServer
    from horovod.runner.elastic.driver import ElasticJob
    from horovod.runner.foreign_job import ForeignJob
    from horovod.runner.settings import JobSettings
    from horovod.runner.supervised_job import SupervisedJob


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Dict[str, Any]] = None,
    num_proc: int = 1,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    slots: Optional[int] = None,
    reset_limit: Optional[int] = None,
    cooldown_range: Optional[Tuple[int, int]] = None,
    hosts: Optional[str] = None,
    hostfile: Optional[str] = None,
    host_discovery_script: Optional[str] = None,
    start_timeout: Optional[int] = None,
    ssh_port: Optional[int] = None,
    ssh_identity_file: Optional[str] = None,
    disable_cache: Optional[bool] = None,
    output_filename: Optional[str] = None,
    verbose: Optional[int] = None,
    use_gloo: Optional[bool] = None,
    use_mpi: Optional[bool] = None,
    mpi_args: Optional[str] = None,
    network_interface: Optional[str] = None,
    network_interfaces: Union[str, Sequence[str], None] = None,
    executable: Optional[str] = None,
    np: Optional[int] = None,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
    env: Optional[Dict[str, str]] = None,
    dashboard: Union[bool, int, None] = None,
    dashboard_address: Optional[str] = None,
    metrics_port: Optional[int] = None,
    metrics_address: Optional[str] = None,
    **settings: Any,
) -> List[Any]:
    """Calls func(*args, **kwargs) on every rank and returns the results in rank order.

    func:        any function, closure or lambda (sent with cloudpickle). It calls hvd.init() itself.
    num_proc:    number of ranks (np is the older name).
    hosts:       "a:2,b:2", or hostfile; default: all ranks on this machine.
    start_timeout, ssh_port, ssh_identity_file, network_interfaces, output_filename, verbose:
                 as the options of horovodrun.
    use_mpi, mpi_args:
                 start the ranks with the mpirun found, as --mpi and --mpi-args of horovodrun do.
    executable:  the Python of the workers; default this one.
    env:         environment of the workers; default this process's.
    dashboard:   True, or a port: show the job as a page in a browser; its address is printed.
    metrics_port: serve the metrics of all ranks to Prometheus there.
    dashboard_address, metrics_address:
                 where these listen; default 127.0.0.1.
    settings:    any setting by the name of its flag, e.g. fusion_threshold_mb=64.
    min_num_proc, max_num_proc, slots, reset_limit, cooldown_range, host_discovery_script:
                 make the job elastic, as the options of horovodrun do; func trains inside a function
                 decorated with hvd.elastic.run. The results are those of the ranks of the last world.

    If func raises on a rank, the exception is raised here, with the remote traceback as its cause, and the
    other ranks are ended. A rank that dies otherwise raises RuntimeError with its host, exit code and
    last lines; under use_mpi with the exit code of mpirun.
    """
    num_proc = _renamed("np", np, "num_proc", num_proc)
    min_num_proc = _renamed("min_np", min_np, "min_num_proc", min_num_proc)
    max_num_proc = _renamed("max_np", max_np, "max_num_proc", max_num_proc)
    if network_interface:
        warnings.warn(
            "network_interface is deprecated, use network_interfaces instead",
            DeprecationWarning,
            stacklevel=2,
        )
        network_interfaces = network_interface
    _check_number("num_proc", num_proc)
    if hosts is not None and hostfile is not None:
        raise ValueError("Argument hosts and hostfile only allow one provided.")
    if use_gloo and use_mpi:
        raise ValueError("Argument use_gloo and use_mpi only allow one set True.")
    _check_settings(settings)
    from horovod.common import config
    from horovod.runner.hosts import HostInfo, parse_host_files, parse_hosts
    from horovod.runner.results import pickled
    from horovod.runner.settings import JobSettings
    from horovod.runner.watch.wanted import wanted

    if hostfile is not None:
        hosts = parse_host_files(hostfile)
    worker_env = _worker_env(env, settings)
    looks = {
        "dashboard": (None, 0)[dashboard] if isinstance(dashboard, bool) else dashboard,
        "dashboard_address": dashboard_address,
        "metrics_port": metrics_port,
        "metrics_address": metrics_address,
    }
    job = JobSettings(
        command=[executable or sys.executable, "-m", "horovod.runner.run_task"],
        num_proc=num_proc,
        hosts=parse_hosts(hosts) if hosts else [HostInfo("localhost", num_proc)],
        env=worker_env,
        ssh_port=ssh_port,
        ssh_identity_file=ssh_identity_file,
        start_timeout=float(start_timeout or config.get("start_timeout")),
        nics=_names(network_interfaces) or None,
        output_filename=output_filename,
        verbose=int(verbose or 0),
        stdout=sys.stdout,
        stderr=sys.stderr,
        watch=wanted(looks, worker_env),
    )
    call = pickled(func, args, kwargs)
    if host_discovery_script is not None or min_num_proc is not None:
        from horovod.runner.elastic.driver import ElasticJob
        from horovod.runner.elastic.start import make_discovery, make_limits

        if use_mpi:
            raise ValueError("elastic jobs cannot be started with use_mpi")
        limits = make_limits(
            job, num_proc, min_num_proc, max_num_proc, _elastic_timeout(settings, job.env),
            reset_limit, host_discovery_script is None,
        )  # fmt: skip
        discovery = make_discovery(host_discovery_script, slots, job.hosts, num_proc)
        return results_of(ElasticJob(job, limits, discovery, cooldown_range, _publishing(call)))
    if use_mpi:
        from horovod.runner.mpi_run import mpi_job

        return results_of(mpi_job(job, mpi_args, _publishing(call)))
    return run_job(job, call)


def run_job(settings: JobSettings, call: bytes) -> List[Any]:
    """Runs a pickled call (results.pickled) on every rank of a job."""
    from horovod.runner.job import Job

    return results_of(Job(settings, prepare=_publishing(call)))


def _publishing(call: bytes) -> Callable[[StoreServer], None]:
    from horovod.runner import results

    return lambda store: results.publish(store, call)


def results_of(job: Union[SupervisedJob, ElasticJob, ForeignJob]) -> List[Any]:
    """Runs a job whose ranks call a published function. Returns what it returns, or raises what it raises."""
    from horovod.runner import results
    from horovod.runner.foreign_job import CommandFailed
    from horovod.runner.supervision import JobFailed, JobInterrupted

    try:
        job.run()
    except JobInterrupted as interruption:
        if interruption.number == signal.SIGINT:  # what Python code and notebooks expect of Ctrl-C
            raise KeyboardInterrupt from interruption
        raise
    except JobFailed as failure:
        if job.store is not None:
            first = failure.first
            results.raise_remote_error(job.store, first.rank, first.host, first.worker)
        raise
    except CommandFailed as failure:
        if job.store is not None:
            results.raise_first_error(job.store, failure.hosts)
        raise
    assert job.store is not None
    if len(job.finished) < job.fewest:
        raise RuntimeError(
            f"only {len(job.finished)} of at least {job.fewest} ranks have finished: the others left the job"
        )
    return results.collect(job.store, job.finished)


def _worker_env(env: Optional[Dict[str, str]], settings: Dict[str, Any]) -> Dict[str, str]:
    from horovod.common import config

    base = importable(dict(os.environ if env is None else env))
    made = {**base, **config.env_of(settings, base)}
    config.check(made)
    return made


def _names(listed: Union[str, Sequence[str], None]) -> List[str]:
    """A list, or its items in one text with commas, as the option takes them."""
    if isinstance(listed, str):
        return [name.strip() for name in listed.split(",") if name.strip()]
    return list(listed or ())


def _elastic_timeout(settings: Dict[str, Any], env: Dict[str, str]) -> float:
    """The setting given, else the environment's. It is the launcher's own: `env_of` leaves it out."""
    from horovod.common import config

    given = settings.get("elastic_timeout")
    if given is None:
        return float(config.get("elastic_timeout", env))
    return float(config.BY_NAME["elastic_timeout"].from_flag(given))


def importable(env: Dict[str, str]) -> Dict[str, str]:
    """Lets workers import what the caller can: its sys.path, as multiprocessing does."""
    from horovod.runner.settings import working_directory

    folder = working_directory()
    here = [os.path.abspath(os.path.join(folder, entry)) for entry in sys.path]
    before = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    standard = (sys.prefix, sys.base_prefix)
    extra = [entry for entry in here if not entry.startswith(standard) and entry not in before]
    if before or extra:
        env["PYTHONPATH"] = os.pathsep.join(before + extra)
    return env


def _check_number(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(
            f"horovod.run({name}={value!r}): the number of ranks must be an integer of 1 or more"
        )


def _check_settings(settings: Dict[str, Any]) -> None:
    from horovod.common import config

    for name in settings:
        if name not in config.BY_DEST:
            raise TypeError(f"run() got an unexpected keyword argument {name!r}; see docs/settings.md")


def _renamed(old: str, old_value: Any, new: str, new_value: Any) -> Any:
    if old_value is None:
        return new_value
    # np= is what every example of the last eight years says; it stays quiet.
    if old != "np":
        warnings.warn(f"{old} is deprecated, use {new} instead", DeprecationWarning, stacklevel=3)
    return old_value
