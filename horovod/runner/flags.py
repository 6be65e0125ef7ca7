# SPDX-License-Identifier: Apache-2.0
"""The command line of horovodrun. Flags that are settings come from the table in horovod.common.config."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Optional, Sequence

from horovod.common import config
from horovod.runner.argument_parser import Formatter, Interfaces, Parser, Renamed
from horovod.version import __version__

_DESCRIPTION = """\
Runs a script on many processes, on this machine or on several.

  horovodrun -np 4 python train.py                        four processes here
  horovodrun -np 8 -H node1:4,node2:4 python train.py     four on each of two hosts, over ssh
  horovodrun --check -np 2                                tests whether that would work, and how fast it is
  horovodrun --check-build                                which frameworks and libraries were found
  horovodrun --report timeline.json                       where a job's time went, and what to do about it
"""

# Stands for "--dashboard" without a port, of which argparse would think that the command is its port.
_ANY_PORT = "--dashboard=\0"


def make_parser() -> argparse.ArgumentParser:
    """The complete parser."""
    parser = Parser(
        prog="horovodrun",
        usage="horovodrun [options] command [arguments of the command]",
        description=_DESCRIPTION,
        formatter_class=Formatter,
    )
    parser.add_argument("-v", "--version", action="version", version=__version__, help="Show the version.")
    _add_job(parser)
    _add_hosts(parser)
    _add_output(parser)
    _add_watching(parser)
    _add_report(parser)
    config.add_arguments(parser, skip=("log_hide_time",))
    _tidy(parser)
    _add_elastic(parser)
    _add_launchers(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="The command to run as every rank.")
    parser.set_defaults(run_func=None, executable=None)
    return parser


def parse(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parses a command line (default: this process's), with the values of --config-file filled in."""
    parser = make_parser()
    words = sys.argv[1:] if argv is None else argv
    args = parser.parse_args([_ANY_PORT if word == "--dashboard" else word for word in words])
    args.command = ["--dashboard" if word == _ANY_PORT else word for word in args.command]
    if args.command and args.command[0] == "--":
        args.command = args.command[1:]
    if args.config_file:
        from horovod.runner import config_file

        config_file.apply(parser, args)
    config.env_of(vars(args))  # raises ValueError for values out of range
    if args.num_proc is not None and args.num_proc < 1:
        parser.error(f"-np must be at least 1, not {args.num_proc}")
    return args


def _tidy(parser: argparse.ArgumentParser) -> None:
    """Shortens what the help shows for the table's flags: "--cache-capacity N", under plain headings."""
    for group in parser._action_groups:
        if group.title is not None and group.title.endswith(" arguments"):
            plain = group.title[: -len(" arguments")]
            group.title = {"params": "tuning", "positional": "command"}.get(plain, plain)
    for action in parser._actions:
        setting = config.BY_DEST.get(action.dest)
        if setting is not None and setting.type is not bool and not setting.choices:
            is_file = setting.name in ("timeline", "autotune_log", "autotune_output")
            action.metavar = "FILE" if is_file else "LIST" if setting.type is str else "N"


def _add_job(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("job")
    group.add_argument(
        "-np", "--num-proc", dest="num_proc", type=int, metavar="N",
        help="Number of processes. Inside a Slurm or LSF allocation it defaults to the allocated tasks.",
    )  # fmt: skip
    group.add_argument(
        "-cb", "--check-build", action="store_true",
        help="Show the frameworks, launchers and libraries found, and what to install for those missing.",
    )  # fmt: skip
    group.add_argument(
        "--check", action="store_true",
        help="Run a short self-test on the given hosts: ranks, addresses, transports, speed, advice.",
    )  # fmt: skip
    group.add_argument(
        "--check-output", metavar="FILE",
        help="With --check: rank 0 also writes what it measured to FILE, on its host, for --report-check.",
    )  # fmt: skip
    group.add_argument(
        "--start-timeout", dest="start_timeout", type=int, metavar="S",
        default=config.get("start_timeout"),
        help="Seconds to wait for all hosts to start their workers (default 30, or HOROVOD_START_TIMEOUT).",
    )  # fmt: skip
    group.add_argument(
        "--config-file", metavar="FILE", help="YAML file with settings; flags given here win over it."
    )
    group.add_argument(
        "--verbose", action="store_true", help="Say what is done and why, e.g. how addresses are chosen."
    )
    group.add_argument(
        "--disable-cache", action="store_true", help="Accepted for compatibility: nothing is cached."
    )


def _add_hosts(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("hosts")
    choice = group.add_mutually_exclusive_group()
    choice.add_argument(
        "-H", "--hosts", metavar="HOST:SLOTS,...", help="Hosts with the most ranks each may run."
    )
    choice.add_argument(
        "-hostfile",
        "--hostfile",
        metavar="FILE",
        help="File with one 'host slots=N' a line; # starts a comment.",
    )
    choice.add_argument(
        "--host-discovery-script",
        metavar="FILE",
        help="Elastic: a script that prints the hosts available now.",
    )
    group.add_argument("-p", "--ssh-port", type=int, metavar="PORT", help="ssh port of all hosts.")
    group.add_argument("-i", "--ssh-identity-file", metavar="FILE", help="ssh private key.")
    group.add_argument(
        "--network-interfaces", dest="nics", action=Interfaces, metavar="NIC,...",
        help="Interfaces to use between hosts. Default: those on the route between them.",
    )  # fmt: skip
    group.add_argument(
        "--network-interface",
        dest="nics",
        action=Interfaces,
        metavar="NIC",
        help="One such interface; repeatable.",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--output-filename",
        metavar="DIR",
        help="Also write what rank N prints to DIR/rank.N/stdout and stderr; elastic: DIR/worker.N.",
    )
    stamps = group.add_mutually_exclusive_group()
    stamps.add_argument(
        "-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true",
        help="Put the time in front of every line the ranks print.",
    )  # fmt: skip
    stamps.add_argument(
        "--log-without-timestamp", dest="log_with_timestamp", action="store_false", default=None,
        help="Print Horovod's own log messages without the time.",
    )  # fmt: skip
    hidden: Any = dict(dest="log_with_timestamp", help=argparse.SUPPRESS)
    stamps.add_argument("--log-with-timestamp", action="store_true", default=None, **hidden)
    stamps.add_argument(
        "--log-hide-timestamp", action=Renamed, const=("--log-without-timestamp", False), **hidden
    )
    stamps.add_argument(
        "--no-log-hide-timestamp", action=Renamed, const=("--log-with-timestamp", True), **hidden
    )


def _add_watching(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "watching", "See inside a job while it runs; docs/dashboard.md. Nothing listens unless asked for."
    )
    group.add_argument(
        "--dashboard", type=lambda text: int(text.replace("\0", "0")), metavar="PORT",
        help="Show the job as a page in a browser; prints its address. --dashboard=PORT fixes the port.",
    )  # fmt: skip
    group.add_argument(
        "--dashboard-address", metavar="ADDR",
        help="Where the page is served (default 127.0.0.1: this machine only). What it shows is not "
        "encrypted on its way: rather use ssh -L.",
    )  # fmt: skip
    group.add_argument("--top", action="store_true", help="Show the job as a table in this terminal.")
    group.add_argument(
        "--metrics-port", type=int, metavar="PORT",
        help="Serve the metrics of all ranks to Prometheus at http://127.0.0.1:PORT/metrics.",
    )  # fmt: skip
    group.add_argument(
        "--metrics-address", metavar="ADDR",
        help="Where they are served (default 127.0.0.1). Everybody who can reach it can read them.",
    )  # fmt: skip
    group.add_argument(
        "--stacks", nargs="?", const="", metavar="JOB",
        help="Print what the ranks of a running job do, with their Python stacks. JOB: its launcher's "
        "process id, or a word of its command; without it, the jobs are listed.",
    )  # fmt: skip


def _add_report(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("report", "What the timelines of a job say; docs/report.md.")
    group.add_argument(
        "--report", nargs="+", metavar="FILE",
        help="Say what these timelines mean, and write a page about them. The FILE of --timeline-filename "
        "stands for those of all ranks.",
    )  # fmt: skip
    group.add_argument(
        "--report-output", metavar="DIR", help="Folder of the page and its pictures (default horovod-report)."
    )
    group.add_argument(
        "--report-check", metavar="FILE", help="Compare bandwidths with this file of --check-output."
    )


def _add_elastic(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "elastic", "Jobs that grow, shrink and go on after losses; docs/elastic.md."
    )
    group.add_argument("--min-np", "--min-num-proc", dest="min_num_proc", type=int, metavar="N",
                       help="Fewest processes to run with; makes the job elastic.")  # fmt: skip
    group.add_argument("--max-np", "--max-num-proc", dest="max_num_proc", type=int, metavar="N",
                       help="Most processes to run with.")  # fmt: skip
    group.add_argument("--slots-per-host", dest="slots", type=int, metavar="N",
                       help="Slots of discovered hosts that do not say.")  # fmt: skip
    group.add_argument("--elastic-timeout", type=int, metavar="S",
                       default=config.get("elastic_timeout"),
                       help="Seconds to wait for enough slots after a change (default 600).")  # fmt: skip
    group.add_argument("--reset-limit", type=int, metavar="N",
                       help="How often the job may re-form, other than for newcomers, before it gives up. "
                       "Default: as long as it makes progress.")  # fmt: skip
    group.add_argument("--elastic-events", metavar="FILE",
                       help="Write what happens to FILE, a JSON object a line.")  # fmt: skip
    group.add_argument("--blacklist-cooldown-range", dest="cooldown_range", type=int, nargs=2,
                       metavar=("MIN", "MAX"),
                       help="Seconds a failed host is left alone (default: for good).")  # fmt: skip


def _add_launchers(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "launchers", "Default: horovodrun starts the ranks itself, here or over ssh."
    )
    choice = group.add_mutually_exclusive_group()
    choice.add_argument("--gloo", dest="use_gloo", action="store_true", help="The default, said aloud.")
    choice.add_argument(
        "--mpi", dest="use_mpi", action="store_true", help="Start the ranks with the mpirun found."
    )
    choice.add_argument(
        "--jsrun", dest="use_jsrun", action="store_true", help="Start the ranks with LSF's jsrun."
    )
    group.add_argument("--mpi-args", metavar="ARGS", help='More arguments for mpirun, as --mpi-args="...".')
    group.add_argument(
        "--binding-args", metavar="ARGS", help="Process binding arguments for mpirun or jsrun."
    )
    group.add_argument("--tcp", dest="tcp_flag", action="store_true", help="TCP only, no InfiniBand.")
