# SPDX-License-Identifier: Apache-2.0
"""Why a process leaves: told to the engine, which tells the others."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests_support import run_world
from world import worker_env

# Notes what the engine is told at the end, then runs a script as a file of its own.
SPY = """
import sys
import horovod.numpy as hvd
from horovod.common import _native
real = _native.lib().hvd_stop
def hvd_stop(reason):
    print("REASON", reason.decode() if reason else None, flush=True)
    return real(reason)
_native.lib().hvd_stop = hvd_stop
hvd.init()
"""


def reason_of(script, tmp_path, *flags):
    """What the engine was told, and the exit code."""
    path = tmp_path / "train.py"
    path.write_text(SPY + script)
    done = subprocess.run(
        [sys.executable, *flags, str(path)], env=worker_env(), capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("REASON ")]
    assert len(lines) == 1, done.stdout + done.stderr
    line = len(SPY.splitlines()) + len(script.splitlines())
    return lines[0][7:].replace(f"(train.py:{line})", "(train.py:last)"), done.returncode


ENDS = {
    "the end of the script": ("", "None", 0),
    "an ordinary shutdown": ("hvd.shutdown()", "None", 0),
    "an exception": ("raise ValueError('bad batch\\nand more')", "ValueError: bad batch (train.py:last)", 1),
    "an exception without words": ("raise KeyError", "KeyError (train.py:last)", 1),
    "Ctrl-C": ("raise KeyboardInterrupt", "KeyboardInterrupt (train.py:last)", None),
    "sys.exit(3)": ("sys.exit(3)", "sys.exit(3) (train.py:last)", 3),
    "sys.exit with words": ("sys.exit('no data')", "sys.exit('no data') (train.py:last)", 1),
    "sys.exit(0)": ("sys.exit(0)", "None", 0),
    "sys.exit()": ("sys.exit()", "None", 0),
    "an exit that was caught": ("try: sys.exit(2)\nexcept SystemExit as e: assert e.code == 2", "None", 0),
    "an exit after one that was caught": (
        "try: sys.exit(2)\nexcept SystemExit as e: e.code\nsys.exit(4)", "sys.exit(4) (train.py:last)", 4),
    "an exit of another thread": (
        "import threading\nt = threading.Thread(target=sys.exit, args=(3,))\nt.start(); t.join()", "None", 0),
    "a finally that shuts down": (
        "try: raise OSError('disk full')\nfinally: hvd.shutdown()", "OSError: disk full (train.py:-)", 1),
    "an error of Horovod's, which others caused": (
        "try: raise hvd.HorovodInternalError('rank 1 died')\nfinally: hvd.shutdown()", "None", 1),
    "an exception that was handled": ("try: raise OSError\nexcept OSError: pass\nhvd.shutdown()", "None", 0),
    "an error inside this package": (
        "hvd.allreduce('text')", "ValueError: NumPy dtype <U4 is not supported", 1),
}  # fmt: skip


@pytest.mark.parametrize("script, reason, code", ENDS.values(), ids=ENDS)
def test_the_engine_is_told_why_the_process_leaves(script, reason, code, tmp_path):
    told, exit_code = reason_of(script, tmp_path)
    assert code in (None, exit_code)  # of Ctrl-C: it depends on how the parent treats signals
    if reason.endswith("(train.py:-)"):
        line = len(SPY.splitlines()) + len(script.splitlines()) - 1
        assert told == reason.replace("-)", f"{line})")
    elif reason.startswith("ValueError: NumPy"):
        assert told.startswith(reason) and told.endswith("(train.py:last)")
    else:
        assert told == reason


def test_hooks_of_others_are_left_alone(tmp_path):
    script = """
before = sys.excepthook
assert before is sys.__excepthook__
def mine(kind, value, traceback):
    print("MINE", value)
sys.excepthook = mine
hvd.shutdown = None
raise ValueError("x")
"""
    path = tmp_path / "train.py"
    path.write_text(SPY + script)
    done = subprocess.run([sys.executable, str(path)], env=worker_env(), capture_output=True, text=True)
    assert "MINE x" in done.stdout and "REASON ValueError: x" in done.stdout


def test_failed_lines_of_an_interactive_session_are_no_reason(tmp_path):
    """There sys.last_value is left by every line that fails, and the session goes on."""
    lines = SPY.strip().replace("\n_native", "\n\n_native") + "\nraise ValueError('a typo')\n1 + 1\n"
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=lines,
        env=worker_env(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "a typo" in done.stderr
    assert "REASON None" in done.stdout


def leaves_with_an_error(path):
    import horovod.numpy as hvd
    from horovod.common import _native

    hvd.init()
    real = _native.lib().hvd_stop

    def hvd_stop(reason):
        with open(path, "wb") as file:
            file.write(reason or b"")
        return real(reason)

    _native.lib().hvd_stop = hvd_stop
    raise ValueError("bad batch")


def test_a_function_of_horovod_run_leaves_with_its_own_error(tmp_path):
    with pytest.raises(ValueError, match="bad batch"):
        run_world(leaves_with_an_error, 1, args=(str(tmp_path / "reason"),))
    assert (tmp_path / "reason").read_text().startswith("ValueError: bad batch (test_exit_reason.py:")
