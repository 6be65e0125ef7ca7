# SPDX-License-Identifier: Apache-2.0
"""horovodrun: from a command line to a running job.

Imports no framework and little else: starting a job must cost no more than starting its processes.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import TYPE_CHECKING, Dict, List, Optional, Union

from horovod.common import config
from horovod.runner import flags
from horovod.runner.allocation import allocated_hosts
from horovod.runner.hosts import HostInfo, parse_host_files, parse_hosts

if TYPE_CHECKING:
    from horovod.runner.settings import JobSettings


def parse_args() -> argparse.Namespace:
    """Parses sys.argv as horovodrun does."""
    args = flags.parse(sys.argv[1:])
    named = args.num_proc is not None or args.min_num_proc is not None
    alone = args.check_build or args.check or args.report or args.stacks is not None
    if not named and not alone and "LSB_JOBID" not in os.environ:
        if allocated_hosts(os.environ) is None:
            flags.make_parser().error("how many processes? Give -np, e.g. horovodrun -np 4 python train.py")
    return args


def run_commandline() -> None:
    """The horovodrun command."""
    _open_standard_descriptors()
    code: Union[int, str, None]
    try:
        code = _run(parse_args())
    except SystemExit as end:  # the parser's, for --help and mistakes
        code = end.code
    except KeyboardInterrupt:  # before the job's own handling of signals, or after it
        code = 128 + signal.SIGINT
    except (ValueError, NotImplementedError, RuntimeError, OSError) as error:
        code = _report(error)
    sys.exit(_flushed(code))


def _report(error: Exception) -> int:
    """Prints what ended the job, without a traceback of ours. Returns the exit status."""
    from horovod.runner.sinks import Sink
    from horovod.runner.supervision import JobInterrupted

    code, patience = (128 + error.number, 1.0) if isinstance(error, JobInterrupted) else (1, 60.0)
    text = f"horovodrun: {error}".rstrip() + "\n"
    # A terminal that is gone or blocked must not change the exit status, nor keep us.
    Sink("standard error", stream=sys.stderr).write(text.encode(errors="replace"), patience)
    return code


def _open_standard_descriptors() -> None:
    """After `horovodrun ... >&-`, the next file or socket opened would become the standard output of all."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def _flushed(code: Union[int, str, None]) -> Union[int, str, None]:
    """The exit status, after what was printed has arrived; 1 if it could not."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes once more at its end
        return _report(OSError(f"cannot write to standard output: {error.strerror}")) if not code else code


def _run(args: argparse.Namespace) -> int:
    if args.check_build:
        return check_build(args.verbose)
    if args.stacks is not None:
        from horovod.runner.watch.inquiry import ask

        print(ask(args.stacks), end="")
        return 0
    if args.report:
        from horovod.runner.report import write_report

        print(write_report(args.report, args.report_output, args.report_check))
        return 0
    if args.check:
        from horovod.runner.self_test import command, default_num_proc

        args.command = command(args.check_output)
        args.num_proc = args.num_proc or default_num_proc()
    if not args.command:
        raise ValueError("no command to run; e.g. horovodrun -np 4 python train.py")
    if args.min_num_proc is not None or args.host_discovery_script is not None:
        return _run_elastic(args)
    return _run_static(args)


def check_build(verbose: bool = False) -> int:
    """Prints what was found at run time."""
    from horovod.runner.check_build import report

    print(report(verbose))
    return 0


def _run_elastic(args: argparse.Namespace) -> int:
    from horovod.runner.elastic.driver import ElasticJob
    from horovod.runner.elastic.start import make_discovery, make_limits

    if args.use_mpi or args.use_jsrun:
        raise ValueError("elastic jobs are started by horovodrun itself: leave --mpi and --jsrun out")
    given = args.hosts or (args.hostfile and parse_host_files(args.hostfile))
    settings = _settings(args, 0, [])
    fixed = args.host_discovery_script is None
    limits = make_limits(
        settings, args.num_proc, args.min_num_proc, args.max_num_proc, float(args.elastic_timeout),
        args.reset_limit, fixed,
    )  # fmt: skip
    hosts = parse_hosts(given) if given else None
    discovery = make_discovery(args.host_discovery_script, args.slots, hosts, limits.num_proc)
    cooldown = tuple(args.cooldown_range) if args.cooldown_range else None
    ElasticJob(settings, limits, discovery, cooldown, events=args.elastic_events).run()
    return 0


def _run_static(args: argparse.Namespace) -> int:
    from horovod.runner.job import Job

    hosts = job_hosts(args)
    num_proc = args.num_proc or sum(host.slots for host in hosts)
    slots = sum(host.slots for host in hosts)
    if num_proc > slots:
        raise ValueError(
            f"Requested more processes ({num_proc}) than there are available slots ({slots}); "
            f"lower -np or raise the slots, e.g. -H {hosts[0].hostname}:{num_proc}"
        )
    settings = _settings(args, num_proc, hosts)
    if args.use_mpi:
        from horovod.runner.mpi_run import mpi_run

        return mpi_run(settings, args.mpi_args, args.binding_args, args.tcp_flag)
    if args.use_jsrun:
        from horovod.runner.js_run import js_run

        return js_run(settings, args.mpi_args, args.binding_args)
    Job(settings).run()
    return 0


def _settings(args: argparse.Namespace, num_proc: int, hosts: List[HostInfo]) -> JobSettings:
    from horovod.runner.settings import JobSettings
    from horovod.runner.watch.wanted import wanted

    env = job_env(args)
    return JobSettings(
        command=list(args.command),
        num_proc=num_proc,
        hosts=hosts,
        env=env,
        ssh_port=args.ssh_port,
        ssh_identity_file=args.ssh_identity_file,
        start_timeout=float(args.start_timeout),
        nics=sorted(args.nics) if args.nics else None,
        output_filename=args.output_filename,
        prefix_output_with_timestamp=args.prefix_output_with_timestamp,
        verbose=2 if args.verbose else 0,
        watch=wanted(vars(args), env),
    )


def job_hosts(args: argparse.Namespace) -> List[HostInfo]:
    """Where to run: what the user says, else the allocation we are in, else here."""
    if args.hosts:
        return parse_hosts(args.hosts)
    if args.hostfile:
        return parse_hosts(parse_host_files(args.hostfile))
    found = allocated_hosts(os.environ)
    if found is not None and (args.num_proc is None or sum(host.slots for host in found) >= args.num_proc):
        return found
    return [HostInfo("localhost", args.num_proc or 1)]


def job_env(args: argparse.Namespace, base: Optional[Dict[str, str]] = None) -> Dict[str, str]:
    """The environment of the workers: this one's, with the settings given as flags."""
    env = dict(os.environ if base is None else base)
    env.update(config.env_of(vars(args), env))
    config.check(env)
    if args.tcp_flag:
        env["NCCL_IB_DISABLE"] = "1"
    return env


if __name__ == "__main__":
    run_commandline()
