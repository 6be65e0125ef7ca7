# SPDX-License-Identifier: Apache-2.0
"""A state that is also written to disk, so that the loss of all hosts costs minutes, not the run.

    state = hvd.elastic.checkpoint(state, "/shared/run7.state", every=100)

Rank 0 writes every N-th commit, in the background, into a new file that then takes the old one's place: a
crash leaves one or the other, never half of one. A job that is started again finds it: rank 0 loads it
before the first synchronisation, from which the others get it.
"""

from __future__ import annotations

import io
import logging
import os
import pickle
import threading
from typing import Any, Optional, TypeVar

log = logging.getLogger("horovod")
S = TypeVar("S")  # a horovod.common.elastic.State
_FORMAT = 1


def checkpoint(state: S, path: str, every: int = 100) -> S:
    """Writes a state to disk at every N-th commit; brings back what is there already. Returns the state.

    Call it on all ranks, before the decorated function. Only rank 0 reads and writes.

    Args:
        path: of the file; on storage that survives the hosts. Whoever can write to it can run code here: it
            holds a pickle.
        every: commits from one writing to the next.
    """
    if every < 1:
        raise ValueError(f"checkpoint(every={every}): must be 1 or more")
    Checkpoint(state, os.fspath(path), every)
    return state


class Checkpoint:
    """Follows the commits of one state."""

    def __init__(self, state: Any, path: str, every: int) -> None:
        self._state, self._path, self._every = state, path, every
        self._commit, self._sync = state.commit, state.sync
        self._writer: Optional[threading.Thread] = None
        self._loaded = False
        # Instance attributes: whatever class the state has, its commits and the first sync come here.
        object.__setattr__(state, "commit", self._committing)
        object.__setattr__(state, "sync", self._synchronising)

    def _synchronising(self) -> None:
        if not self._loaded and self._state._rank() == 0 and self._state._commits == 0:
            self._load()
        self._loaded = True
        self._sync()

    def _load(self) -> None:
        try:
            with open(self._path, "rb") as file:
                found = pickle.load(file)
        except FileNotFoundError:
            return
        if found.get("format") != _FORMAT:
            raise ValueError(f"{self._path} is not a checkpoint of this version of Horovod")
        self._state.load_snapshot(found["snapshot"])
        self._state._commits = found["commits"]
        log.warning("goes on from %s, after %d commits", self._path, found["commits"])

    def _committing(self) -> None:
        try:
            self._commit()
        finally:  # also when hosts have changed: the state was saved
            if self._state._commits % self._every == 0 and self._state._rank() == 0:
                self._write()

    def _write(self) -> None:
        """Pickles now, since the next commit changes what is kept; writes in the background."""
        if self._writer is not None:
            self._writer.join()  # a disk that is slower than the commits slows them down
        data = io.BytesIO()
        found = {"format": _FORMAT, "commits": self._state._commits, "snapshot": self._state.snapshot()}
        pickle.dump(found, data, protocol=5)
        self._writer = threading.Thread(
            target=self._replace, args=(data.getbuffer(),), name="horovod-checkpoint"
        )
        self._writer.start()

    def _replace(self, data: Any) -> None:
        temporary = f"{self._path}.{os.getpid()}.new"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except OSError as error:
            log.error("cannot write the checkpoint %s: %s; training goes on without it", self._path, error)
            try:
                os.unlink(temporary)
            except OSError:
                pass
