# SPDX-License-Identifier: Apache-2.0
"""The snippets of docs/spark.md and the examples, one after the other in one Spark session.

Run by the fixture `pages`; prints a line of JSON for each: what it printed, and the traceback if it raised.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import sys
import traceback

from spark_here import session
from world import ROOT

EXAMPLES = {
    "spark_keras_digits.py": ["--epochs", "4"],
    "spark_torch_digits.py": ["--epochs", "4", "--backward-passes-per-step", "2"],
    "spark_keras_sales.py": ["--shops", "20", "--days", "500", "--forecast", "sales.csv"],
}


def snippets():
    """The page's code, in order."""
    with open(os.path.join(ROOT, "docs", "spark.md"), encoding="utf-8") as document:
        found = re.findall(r"^```python\n(.*?)^```", document.read(), re.M | re.S)
    assert len(found) > 5
    with open("snippets.py", "w", encoding="utf-8") as file:
        file.write("\n".join(found))
    return file.name


def run(name, path, *options):
    """Runs a file as if it were the program."""
    printed, error = io.StringIO(), ""
    sys.argv = [path, *options]
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(path, run_name="__main__")
        except BaseException:
            error = traceback.format_exc()
    print(json.dumps({"job": name, "text": printed.getvalue(), "error": error}), flush=True)


def main(folder):
    os.chdir(folder)
    with session("local[2]") as spark:
        kind = type(spark)
        stop, kind.stop = kind.stop, lambda self: None  # each of them ends with it
        try:
            run("docs", snippets())
            sys.path.insert(0, os.path.join(ROOT, "examples"))
            for name, options in EXAMPLES.items():
                work = ["--work-dir", os.path.join(folder, name)]
                run(name, os.path.join(ROOT, "examples", name), *work, *options)
        finally:
            kind.stop = stop


if __name__ == "__main__":
    main(sys.argv[1])
