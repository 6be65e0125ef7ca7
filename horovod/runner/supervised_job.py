# SPDX-License-Identifier: Apache-2.0
"""A job of fixed size under supervision: whatever started its ranks, it is watched and reported on alike.

subclass: a host runner for each host -> events -> Supervisor -> everything ended
"""

from __future__ import annotations

import time
from typing import List, Sequence, Union

from horovod.runner.host_runner import Event, WorkerExited
from horovod.runner.job_frame import JobFrame
from horovod.runner.output import Output
from horovod.runner.placement import SlotInfo
from horovod.runner.settings import JobSettings
from horovod.runner.supervision import Interrupted, Supervisor, WorkerFailure, announcement


class SupervisedJob(JobFrame):
    """A running (or to be run) static job. Subclasses start its ranks.

    Attributes:
        slots: the ranks, with the hosts' names of `_runners`; known when `_start` returns.
    """

    def __init__(self, settings: JobSettings) -> None:
        super().__init__(settings)
        self.slots: Sequence[SlotInfo] = ()
        self._several_hosts = False

    @property
    def finished(self) -> List[str]:
        """After success: by which names the store knows the workers, in the order of their ranks."""
        return [str(rank) for rank in range(len(self.slots))]

    def _make_output(self) -> Output:
        settings = self.settings
        return Output(
            settings.num_proc,
            settings.output_filename,
            settings.prefix_output_with_timestamp,
            settings.stdout,
            settings.stderr,
        )

    def _supervise(self) -> None:
        settings = self.settings
        supervisor = Supervisor(
            self.slots, time.monotonic(), settings.start_timeout, settings.network_timeout, self._output.tail
        )
        while not supervisor.over:
            event = self._next_event(supervisor.wake_at())
            now = time.monotonic()
            if event is not None:
                supervisor.handle(event, now)
                self._announce(event)
            if self._several_hosts:
                supervisor.silences(self._silences())
            supervisor.tick(now)
            for level, text in supervisor.words():
                self.say(text, level)
        if supervisor.error is not None:
            raise supervisor.error

    def _announce(self, event: Union[Event, Interrupted]) -> None:
        """Tells ranks that wait in hvd.init() for one that will not come any more."""
        if self.store is not None and isinstance(event, WorkerExited):
            tail = self._output.tail(event.worker)
            failure = WorkerFailure(event.worker, event.host, event.code, tail)
            self.store.lost(str(event.worker), announcement(failure))
