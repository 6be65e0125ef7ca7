# SPDX-License-Identifier: Apache-2.0
"""GPUs that are not there, for tests in Python: see csrc/tests/standin.

    World(2, env=standin_env())                ranks whose engine takes the stand-ins for driver and NCCL
    gpu = Gpu(device)                          in a rank: memory and a stream of it
    pretend_cuda(gpu)                          horovod.torch then takes CPU tensors for tensors on that GPU

A stand-in's memory is host memory, so any address will do as device memory.
"""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict

from horovod.runner import driver_gpu

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@functools.cache
def standin_env() -> Dict[str, str]:
    """Environment variables that make a rank use the stand-ins, which are built if they are not there."""
    build = os.path.join(ROOT, "build")
    paths = {
        "HOROVOD_CUDA_LIBRARY": os.path.join(build, "standin", "libcuda_standin.so"),
        "HOROVOD_NCCL_LIBRARY": os.path.join(build, "standin", "libnccl_standin.so"),
    }
    # The same ninja as `make build`: another release of it would compile everything anew.
    env = dict(os.environ, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""))
    subprocess.run(
        ["cmake", "-S", ROOT, "-B", build, "-DHOROVOD_TESTS=ON"],
        check=True,
        stdout=subprocess.DEVNULL,
        env=env,
    )
    subprocess.run(
        ["cmake", "--build", build, "--target", "cuda_standin", "nccl_standin"],
        check=True,
        stdout=subprocess.DEVNULL,
        env=env,
    )
    # Claims of places on these GPUs concern nobody but the tests of this process.
    folder = tempfile.TemporaryDirectory(prefix="hvd-standin-")
    atexit.register(folder.cleanup)
    return {**paths, "CUDA_MPS_PIPE_DIRECTORY": folder.name}


class Gpu(driver_gpu.Gpu):
    """One device of the stand-in, in the process of a rank, with a stream as a framework would have it."""

    def calls(self, name: str) -> int:
        """How often a call of the driver was made in this process."""
        return int(self._cuda.standin_calls(name.encode()))


def pretend_cuda(gpu: Gpu) -> None:
    """Makes horovod.torch take CPU tensors for CUDA tensors on that GPU, in this process.

    torch's own kernels run at once and know nothing of the stand-in's stream, so whoever makes that stream
    wait waits with it.
    """
    import horovod.torch  # noqa: F401
    from horovod.common import _calls, engine

    for name, module in list(sys.modules.items()):
        if name.startswith("horovod.torch."):
            for function, pretended in (
                ("device_of", lambda tensor: gpu.device),
                ("device_number", lambda tensor: gpu.device),
                ("current_stream", lambda device: gpu.stream),
            ):
                if hasattr(module, function):
                    setattr(module, function, pretended)

    def and_wait(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            gpu.synchronize()
            return result

        return call

    for module, function in (
        (engine, "wait_stream"), (engine, "copy_output"), (engine, "run_released"), (_calls, "run_memory"),
    ):  # fmt: skip
        setattr(module, function, and_wait(getattr(module, function)))
