# SPDX-License-Identifier: Apache-2.0
"""All benchmarks in one go: tables here, JSON and PNG in out/benchmarks.

python -m benchmarks.run                    everything, about ten minutes
python -m benchmarks.run --quick            a smoke test of everything
python -m benchmarks.run allreduce startup  only these
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from benchmarks import (
    allreduce,
    busy_thread,
    coordinator,
    many_tensors,
    plot,
    report,
    startup,
    tensorflow_allreduce,
    two_hosts,
)
from benchmarks.environments import ROOT
from benchmarks.harness import machine, save

BENCHMARKS: Dict[str, Callable[[bool], Dict[str, Any]]] = {
    "allreduce": allreduce.run,
    "many_tensors": many_tensors.run,
    "busy_thread": busy_thread.run,
    "two_hosts": two_hosts.run,
    "coordinator": coordinator.run,
    "startup": startup.run,
    "tensorflow": tensorflow_allreduce.run,
}


def main(arguments: Optional[List[str]] = None) -> int:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=summary)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"which: {', '.join(BENCHMARKS)} (default: all)")
    add("--quick", action="store_true", help="few sizes and repetitions, to see that it works")
    add("--out", type=Path, default=ROOT / "out" / "benchmarks", help="where JSON and PNG go")
    realtime = "real-time priority where ranks have a core each, for machines that are not idle (needs root)"
    add("--realtime", action="store_true", help=realtime)
    documents = "also put the table into README.md and docs/tuning.md, and the pictures into docs/assets"
    add("--docs", action="store_true", help=documents)
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # teams are closed on the way out
    if options.realtime:
        os.environ["HVD_BENCH_REALTIME"] = "1"
    about = {**machine(), "realtime": options.realtime}
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load']:.1f}")
    if about["load"] > 1 and not options.quick and not options.realtime:
        print("benchmarks: this machine is busy; read ratios, not times", file=sys.stderr)
    targets = [options.out] + ([ROOT / "docs" / "assets"] if options.docs else [])
    for name in options.names or BENCHMARKS:
        result = BENCHMARKS[name](options.quick)
        if not result:
            continue
        save(name, {"machine": about, "result": result}, options.out)
        if options.docs and name == "allreduce":
            report.write(result, about)
        picture: Optional[Callable[[Dict[str, Any], Path], None]] = getattr(plot, name, None)
        for target in targets if picture is not None else []:
            target.mkdir(parents=True, exist_ok=True)
            try:
                picture(result, target / f"benchmark_{name}.png")  # type: ignore[misc]
            except ImportError as error:
                print(f"benchmarks: no picture of {name}: {error}", file=sys.stderr)
    print(f"\nwritten to {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
