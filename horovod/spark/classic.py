# SPDX-License-Identifier: Apache-2.0
"""Tasks of a classic Spark session: the driver is this process, and Spark's tasks call it."""

from __future__ import annotations

import itertools
import threading
from typing import Any, Callable, Iterator, List, Optional, Sequence

from horovod.spark.host_task import Launcher, be_a_host

_numbers = itertools.count()
# After the launcher has hung up, how long tasks may take to end by themselves; less after a failure, when
# Spark may try some again.
_END_SECONDS, _FAILED_SECONDS = 20.0, 2.0


class ClassicTasks:
    """A Spark job with one task for each rank. They are plain tasks, so that dynamic allocation works.

    Args:
        context: the SparkContext.
        count: how many.
    """

    def __init__(self, context: Any, count: int) -> None:
        self._context = context
        self._count = count
        self._group = f"horovod.spark.run.{next(_numbers)}"
        self._thread: Optional[threading.Thread] = None

    def start(self, launcher: Launcher, ended: Callable[[Optional[Exception]], None]) -> None:
        """Has Spark start the tasks; `ended` is called when Spark is done with them."""
        from pyspark import InheritableThread

        def work() -> None:
            try:
                self._context.setJobGroup(self._group, "Horovod ranks", interruptOnCancel=True)
                numbers = self._context.parallelize(range(self._count), self._count)
                numbers.mapPartitionsWithIndex(_task(launcher)).collect()
            except Exception as error:
                ended(error)
            else:
                ended(None)

        self._thread = InheritableThread(target=work, daemon=True)
        self._thread.start()

    def end(self, clean: bool) -> None:
        """Waits for the tasks to end, now that nobody talks to them any more, and cancels those that do not.

        Args:
            clean: all went well: no task will be tried again.
        """
        if self._thread is None:
            return
        self._thread.join(_END_SECONDS if clean else _FAILED_SECONDS)
        if self._thread.is_alive() and self._context._jsc is not None:  # not stopped meanwhile
            self._context.cancelJobGroup(self._group)
            self._thread.join(_END_SECONDS)


def _task(launcher: Launcher) -> Callable[[int, Iterator[Any]], Iterator[Any]]:
    def run(number: int, _: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        be_a_host(launcher, number, TaskContext.get())
        return iter(())

    return run


def driver_addresses(conf: Callable[[str], Optional[str]], nics: Optional[Sequence[str]]) -> List[str]:
    """Where tasks can reach this process.

    Args:
        conf: looks a setting of Spark up.
        nics: interfaces that the user has chosen.
    """
    import socket

    from horovod.rendezvous.network import can_bind, interface_address, is_loopback, own_addresses

    if nics:
        return [interface_address(name) for name in nics]
    found: List[str] = []
    for setting in ("spark.driver.host", "spark.driver.bindAddress"):
        name = conf(setting)
        try:
            found += [str(info[4][0]) for info in socket.getaddrinfo(name, None)] if name else []
        except OSError:
            pass  # a name that only the executors can resolve
    ours = [address for address in dict.fromkeys(found) if can_bind(address) and address != "0.0.0.0"]
    if ours and all(is_loopback(address) for address in ours):
        return ours
    return list(dict.fromkeys([*[one for one in ours if not is_loopback(one)], *own_addresses()])) or ours
