# SPDX-License-Identifier: Apache-2.0
"""Lifecycle of the engine in one process, and what importing costs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests_support import run_world, shared_world
from world import worker_env


def python(code, env=None):
    """Runs code in a fresh interpreter without a launcher's variables; returns what it printed."""
    mine = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_TIMELINE", "HOROVOD_GLOO")
    variables = {k: v for k, v in worker_env(env).items() if not k.startswith(mine)}
    variables.update(env or {})
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code],
        env=variables,
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


HEAVY = ["numpy", "torch", "tensorflow", "jax", "mxnet", "keras", "horovod.runner", "asyncio", "cloudpickle"]


def test_import_horovod_loads_nothing_heavy():
    loaded = python(
        f"import sys, horovod; print([m for m in {HEAVY} if m in sys.modules], horovod.__version__)"
    )
    assert loaded.startswith("[] ")


def test_import_of_the_common_layer_loads_no_framework_and_no_numpy():
    frameworks = HEAVY[:6]
    code = f"import sys, horovod.common.basics; print([m for m in {frameworks} if m in sys.modules])"
    assert python(code) == "[]"


def test_run_is_found_lazily_and_unknown_names_are_not():
    assert python("import horovod; print(callable(horovod.run))") == "True"
    assert python("import horovod\ntry: horovod.nothing\nexcept AttributeError as e: print(e)").endswith(
        "'nothing'"
    )


def test_a_process_without_launcher_is_a_world_of_one_without_sockets():
    code = """
import os, horovod.numpy as hvd
before = set(os.listdir('/proc/self/fd'))
hvd.init()
opened = [os.readlink(f'/proc/self/fd/{f}') for f in set(os.listdir('/proc/self/fd')) - before if os.path.exists(f'/proc/self/fd/{f}')]
print(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(),
      hvd.is_homogeneous(), [o for o in opened if 'socket' in o], hvd.allreduce([1., 2.]).tolist())
"""  # noqa: E501
    assert python(code) == "0 1 0 1 0 1 True [] [1.0, 2.0]"


def test_before_init_and_after_shutdown():
    code = """
import horovod.numpy as hvd
def says(f):
    try: f()
    except ValueError as e: return 'ValueError ' + str(e)
    except hvd.HorovodInternalError as e: return 'HorovodInternalError ' + str(e)
    return 'nothing'
def look():
    queries = [hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank, hvd.cross_size]
    said = {says(q) for q in [*queries, hvd.is_homogeneous]}
    print(hvd.is_initialized(), said, says(lambda: hvd.allreduce([1.0])), hvd.gloo_enabled())
hvd.shutdown()
look(); hvd.init(); print(hvd.is_initialized(), hvd.gloo_enabled()); hvd.shutdown(); hvd.shutdown(); look()
"""
    text = "Horovod has not been initialized; use hvd.init()."
    away = f"False {{'ValueError {text}'}} HorovodInternalError {text} False"
    assert python(code).splitlines() == [away, "True True", away]


def test_init_and_shutdown_any_number_of_times():
    code = """
import os, time, horovod.numpy as hvd
def fds(): return len(os.listdir('/proc/self/fd'))
def threads(): return len(os.listdir('/proc/self/task'))
for i in range(30):
    hvd.init(); hvd.init()
    assert hvd.allreduce([float(i)])[0] == i
    hvd.shutdown()
    if i == 1: before = fds(), threads()
deadline = time.monotonic() + 30
while threads() > before[1] and time.monotonic() < deadline:  # one that was joined may be seen for a moment
    time.sleep(0.01)
print(fds() <= before[0] and threads() <= before[1] or (before, fds(), threads()))
"""
    assert python(code) == "True"


def cycles():
    import os

    import horovod.numpy as hvd

    seen = []
    for i in range(8):
        hvd.init()
        total = hvd.allreduce([float(hvd.rank() + i)], op=hvd.Sum, name="x")[0]
        seen.append(total == sum(r + i for r in range(hvd.size())))
        hvd.barrier()
        hvd.shutdown()
        fds = len(os.listdir("/proc/self/fd"))
        if i == 1:
            first = fds
    return all(seen), fds - first


@pytest.mark.parametrize("size, hosts", [(2, None), (3, "localhost:2,127.0.0.1:1")])
def test_cycles_of_init_and_shutdown_with_several_ranks(size, hosts):
    for right, leaked in run_world(cycles, size, hosts=hosts):
        assert right and leaked <= 0


def test_topology_of_two_hosts():
    def where():
        import horovod.numpy as hvd

        names = "rank", "size", "local_rank", "local_size", "cross_rank", "cross_size", "is_homogeneous"
        return [getattr(hvd, name)() for name in names]

    world = shared_world(3, hosts="localhost:2,127.0.0.1:1")
    assert world.run(where) == [
        [0, 3, 0, 2, 0, 2, False],
        [1, 3, 1, 2, 0, 1, False],
        [2, 3, 0, 1, 1, 2, False],
    ]


def test_start_timeline_needs_the_variable():
    code = """
import horovod.numpy as hvd
hvd.init()
try: hvd.start_timeline('/tmp/never')
except ValueError as e: print(e)
"""
    assert python(code) == "Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline usage."


def test_wrong_comm_is_refused():
    code = """
import horovod.numpy as hvd
try: hvd.init(comm=3)
except ValueError as e: print(e)
hvd.init(comm=[0]); print(hvd.size())
"""
    first, second = python(code).splitlines()
    assert first.startswith("Invalid type of argument comm.") and second == "1"


def test_a_forked_child_has_no_engine_and_says_so():
    code = """
import os, horovod.numpy as hvd
hvd.init()
hvd.allreduce([1.0])
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    said = []
    for call in (hvd.rank, lambda: hvd.allreduce([1.0])):
        try: call(); said.append('nothing')
        except (ValueError, hvd.HorovodInternalError) as e: said.append(str(e))
    os.write(write, repr((hvd.is_initialized(), said)).encode())
    os._exit(0)
os.waitpid(pid, 0)
child = eval(os.read(read, 10000).decode())
print(child[0], ['fork' in text for text in child[1]], hvd.allreduce([2.0])[0])
"""
    assert python(code) == "False [True, True] 2.0"


def test_exit_without_shutdown_is_clean():
    def body():
        import horovod.numpy as hvd

        hvd.init()
        return float(hvd.allreduce(1.0, op=hvd.Sum))

    assert run_world(body, 2) == [2.0, 2.0]


def test_the_version_is_the_same_everywhere():
    import re

    from world import ROOT

    import horovod

    with open(f"{ROOT}/pyproject.toml") as file:
        (declared,) = re.findall(r'^version = "(.*)"$', file.read(), re.M)
    assert horovod.__version__ == declared
