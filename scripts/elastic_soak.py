# SPDX-License-Identifier: Apache-2.0
"""Minutes of a small training with a random death, join or departure every few seconds, on 2 to 6 ranks.

    python scripts/elastic_soak.py --minutes 30 [--seed 1]

Ends with an error unless the training ends with the sums and sample counts it must have.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Set, Tuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from elastic_jobs import ElasticRun, check_results  # noqa: E402
from launching import alive  # noqa: E402

MOST = 6


def soak(
    folder: str,
    seconds: float,
    seed: int,
    pause: Tuple[float, float] = (0.5, 4.0),
    say: Callable[[str], None] = print,
    at_least: int = 0,
) -> Dict[str, Any]:
    """Hurts a job for that long, and so many times; returns what happened.

    Raises AssertionError for a wrong end.
    """
    chance = random.Random(seed)
    enough = os.path.join(folder, "enough")
    script = ["--steps", "10", "--pause", "0.01", "--commit-every", "3", "--wait-for", enough]
    hosts = {"localhost": 2, "127.0.0.1": 2}
    lines = [f"{name}:{slots}" for name, slots in hosts.items()]
    hurt = 0  # times that ranks died or left; each forms a new world, unless the next comes too soon
    gone: Set[int] = set()  # processes that were told to end: they may live on for a moment
    with ElasticRun(folder, lines, "-np", "2", "--min-np", "1", "--max-np", str(MOST), script=script) as job:
        job.wait_for("train", count=4, size=4)
        end = time.monotonic() + seconds
        while time.monotonic() < end or hurt < at_least:
            time.sleep(chance.uniform(*pause))
            job.wait_for_steps(2)
            kind = chance.choice(["kill", "kill", "kill", "kill", "leave", "hosts", "hosts"])
            living = [pid for pid in job.world().values() if pid not in gone and alive(pid)]
            if kind == "hosts":
                changed = chance.choice(list(hosts))
                hosts[changed] = chance.randint(2, 3)
                job.hosts(*[f"{name}:{slots}" for name, slots in hosts.items()])
                job.wait_for_at_most(hosts[changed], changed)  # who must go is none of those that stay
            elif len(living) > 1:  # one must stay who has the state
                # The slot of one that leaves rests for a minute.
                victims = chance.sample(living, chance.randint(1, len(living) - 1) if kind == "kill" else 1)
                for pid in victims:
                    os.kill(pid, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
                gone.update(victims)
                hurt += 1
            say(f"{kind}: {len(living)} ranks, {hosts}")
        job.wait_for_steps(2)
        open(enough, "w").close()
        results = job.finish(120)
        check_results(results)
    formed = job.events("formed")
    waits = sorted(one["milliseconds"] for one in formed[1:])
    middle = waits[len(waits) // 2] if waits else 0
    return {"hurt": hurt, "generations": len(formed), "steps": results[0]["steps"], "median_ms": middle}


def main() -> None:
    """The long one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(soak(folder, args.minutes * 60, args.seed))


if __name__ == "__main__":
    main()
