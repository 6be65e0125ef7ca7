# SPDX-License-Identifier: Apache-2.0
"""horovodrun --jsrun: starts the ranks with LSF's jsrun (readers/jsrun.py reads what it sets)."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from typing import List, Optional

from horovod.runner.placement import get_host_assignments
from horovod.runner.settings import JobSettings


def js_command(
    settings: JobSettings, mpi_args: Optional[str] = None, binding_args: Optional[str] = None
) -> List[str]:
    """The complete jsrun argv for a job: one resource set a rank."""
    argv = ["jsrun"]
    if binding_args:
        argv += shlex.split(binding_args)
    else:
        slots = get_host_assignments(settings.hosts, settings.num_proc, settings.num_proc)
        per_host = max(slot.local_size for slot in slots)
        argv += ["--nrs", str(settings.num_proc), "--tasks_per_rs", "1", "--rs_per_host", str(per_host)]
    if settings.output_filename:
        argv += ["--stdio_stdout", settings.output_filename, "--stdio_stderr", settings.output_filename]
    argv += ["--smpiargs", mpi_args] if mpi_args else []
    return argv + settings.command


def js_run(settings: JobSettings, mpi_args: Optional[str] = None, binding_args: Optional[str] = None) -> int:
    """Becomes jsrun or, if somebody looks at the job, runs it; its exit status is the job's."""
    if "LSB_JOBID" not in os.environ:
        raise ValueError(
            "Horovod did not detect an LSF job.  The jsrun launcher can only be used in that environment. "
            "Please, pick a different launcher for other environments."
        )
    if shutil.which("jsrun") is None:
        raise ValueError(
            "horovod does not find the jsrun command. Load the module that provides it, or leave --jsrun "
            "away: horovodrun starts the ranks on the allocated hosts over ssh"
        )
    argv = js_command(settings, mpi_args, binding_args)
    if settings.verbose:
        print("horovodrun: " + " ".join(shlex.quote(word) for word in argv), file=sys.stderr, flush=True)
    if settings.watch is not None:
        from horovod.runner.foreign_job import run_watched

        return run_watched(settings, lambda settings: argv, lambda settings: dict(settings.env))
    os.execvpe(argv[0], argv, dict(settings.env))
    raise AssertionError("execvpe returned")
