# SPDX-License-Identifier: Apache-2.0
"""A rank of a Distributor that runs a script: `python -m horovod.spark.script_task 1 train.py --lr 0.1`."""

from __future__ import annotations

import os
import runpy
import sys

from horovod.spark.common.gpu import show_gpu


def main() -> None:
    """Chooses the GPU and becomes the script."""
    use_gpu, path = sys.argv[1], sys.argv[2]
    show_gpu(bool(int(use_gpu)))
    sys.argv = sys.argv[2:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    main()
