# SPDX-License-Identifier: Apache-2.0
"""python -m horovod.runner.report: the same as horovodrun --report."""

from __future__ import annotations

import argparse
import sys
from typing import Optional, Sequence

from horovod.runner.report import DEFAULT_OUTPUT, write_report


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Parses the command line and writes the report. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m horovod.runner.report", description=__doc__)
    parser.add_argument("files", nargs="+", metavar="FILE", help="timelines of a job's ranks")
    parser.add_argument("--output", metavar="DIR", help=f"where to write it (default {DEFAULT_OUTPUT})")
    parser.add_argument("--check", metavar="FILE", help="what horovodrun --check --check-output wrote")
    args = parser.parse_args(argv)
    try:
        print(write_report(args.files, args.output, args.check))
    except (ValueError, OSError) as error:
        print(f"horovod.runner.report: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
