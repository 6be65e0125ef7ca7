# SPDX-License-Identifier: Apache-2.0
"""Small helpers that front ends and user code share."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sysconfig
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, TypeVar

from horovod.common import _native, capabilities
from horovod.common.arguments import resolve_op

T = TypeVar("T")

EXTENSIONS = ["tensorflow", "torch", "mxnet"]


def get_ext_suffix() -> str:
    """The file name suffix of compiled extension modules."""
    return sysconfig.get_config_var("EXT_SUFFIX") or sysconfig.get_config_var("SO") or ".so"


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Path of a compiled extension beside a package's file."""
    return os.path.join(os.path.dirname(pkg_path), *args[:-1], args[-1] + get_ext_suffix())


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raises ImportError unless the extension is there. That of every package of ours is the engine."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    ours = os.path.abspath(pkg_path).startswith(package)
    path = _native.library_path() if ours else get_extension_full_path(pkg_path, *args)
    if not os.path.exists(path):
        raise ImportError(
            f"Extension {ext_name} has not been built: {path} not found\nIf this is not expected, reinstall "
            f"Horovod with {ext_env_var}=1 to debug the build error."
        )


def _cache(function: Callable[..., T]) -> Callable[..., T]:
    """Remembers results by arguments."""
    results: Dict[Any, T] = {}

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> T:
        key = (args, frozenset(kwargs.items()))
        if key not in results:
            results[key] = function(*args, **kwargs)
        return results[key]

    return wrapper


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether a front end can be used: its framework is installed, and so is the engine."""
    if verbose:
        print(f"Checking whether extension {ext_base_name} was built.")
    available = _installed(ext_base_name) and os.path.exists(_native.library_path())
    if verbose:
        print(f"Extension {ext_base_name} was {'' if available else 'NOT '}built.")
    return available


@_cache
def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether collectives of that front end run on GPUs here."""
    return capabilities.cuda_built() or capabilities.rocm_built()


def mpi_built(verbose: bool = False) -> bool:
    """Whether MPI can be used here."""
    return capabilities.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """Whether plain sockets can be used: always."""
    return capabilities.gloo_built()


def nccl_built(verbose: bool = False) -> int:
    """The version of NCCL in use, 0 for none."""
    return capabilities.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """False: DDL is not supported."""
    return capabilities.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """False: oneCCL is not supported."""
    return capabilities.ccl_built()


@contextlib.contextmanager
def env(**variables: Optional[str]) -> Iterator[None]:
    """Sets environment variables for the time of a `with` block; None leaves one as it is."""
    given = {name: str(value) for name, value in variables.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def split_list(items: Sequence[T], n: int) -> List[List[T]]:
    """`n` consecutive chunks whose lengths differ by at most one, the longer ones first."""
    short, longer = divmod(len(items), n)
    chunks, at = [], 0
    for i in range(n):
        length = short + (1 if i < longer else 0)
        chunks.append(list(items[at : at + length]))
        at += length
    return chunks


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether a number of ranks is a power of two; 0 is not."""
    return num_rank != 0 and num_rank & (num_rank - 1) == 0


def get_average_backwards_compatibility_fun(
    reduce_ops: Any,
) -> Callable[[Optional[int], Optional[bool]], int]:
    """A function of (op, average) that gives the reduction to use."""
    return resolve_op


def check_installed_version(name: str, version: str, exception: Optional[Exception] = None) -> None:
    """Re-raises a failed import of a framework, if there is one. One build serves every version."""
    if exception is not None:
        raise exception


def is_iterable(value: Any) -> bool:
    """Whether `iter(value)` works."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


@_cache
def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compares versions; the target must have the form major.minor.patch."""
    from packaging import version

    if not all(isinstance(text, str) for text in (ver, target)):
        raise ValueError(
            f"This function only accepts string arguments. Received: version: {ver}, target: {target}"
        )
    if len(target.split(".")) != 3:
        raise ValueError(
            f"We only accepts target version values in the form of: major.minor.patch. Received: {target}"
        )
    return version.parse(ver) >= version.parse(target)
