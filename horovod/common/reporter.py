# SPDX-License-Identifier: Apache-2.0
"""Tells the launcher once a second what this rank does, and answers its questions, over the job's store.

    rank -> launcher   "observe/snapshot/WORKER"    observation.snapshot(), and where the script is
    launcher -> rank   "observe/ask/WORKER/N"       the N-th question: "stacks"
    rank -> launcher   "observe/answer/WORKER/N"    its answer

WORKER is the rank in a static job, HOROVOD_WORKER_ID in an elastic one. Only where the launcher wants to know
(HOROVOD_OBSERVE), by one thread, which waits for questions between two reports.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import threading
import time
from types import FrameType
from typing import Any, Dict, List, Mapping, Optional

from horovod.common import config, observation, samples, stack_line
from horovod.common.exceptions import HorovodInternalError
from horovod.rendezvous.detection import detect
from horovod.rendezvous.errors import StoreError, StoreTimeout
from horovod.rendezvous.identity import Identity, host_name
from horovod.rendezvous.readers import own
from horovod.rendezvous.store import StoreClient

SNAPSHOT, ASK, ANSWER = "observe/snapshot/", "observe/ask/", "observe/answer/"
REPORT_SECONDS = 1.0
_STACK_DEPTH = 40

_thread: Optional[threading.Thread] = None


def start() -> None:
    """Begins to report, if the launcher wants to know; any number of times."""
    global _thread
    if not config.get("observe") or (_thread is not None and _thread.is_alive()):
        return
    identity = own.read(os.environ) or _started_by_another(os.environ)
    if identity is not None:
        _thread = threading.Thread(target=_report, args=(identity,), name="horovod-reporter", daemon=True)
        _thread.start()


def _started_by_another(env: Mapping[str, str]) -> Optional[Identity]:
    """Who this rank is for our launcher, if that had mpirun or jsrun start it."""
    if own.STORE not in env:
        return None
    return dataclasses.replace(detect(env), meet=lambda me, timeout: own.open_store(env, timeout))


def _report(identity: Identity) -> None:
    worker = identity.worker or str(identity.rank)
    answered = 0
    try:
        with identity.open_store() as store:
            while True:
                send(store, worker)
                answered += _answer(store, worker, answered)
    except StoreError:
        pass  # the job is over
    except Exception:  # whatever is wrong with watching, training goes on
        logging.getLogger("horovod").warning("this rank reports no more to the launcher", exc_info=True)


def send(store: StoreClient, worker: str) -> None:
    """Reports once."""
    store.set(SNAPSHOT + worker, json.dumps(_snapshot()).encode())


def _answer(store: StoreClient, worker: str, number: int) -> int:
    """Waits for a question until the next report is due. Returns how many were answered."""
    try:
        question = store.get(f"{ASK}{worker}/{number}", REPORT_SECONDS)
    except StoreTimeout:
        return 0
    answer = observation.stacks() if question == b"stacks" else f"unknown question {question!r}"
    store.set(f"{ANSWER}{worker}/{number}", answer.encode("utf-8", "replace"))
    return 1


def _snapshot() -> Dict[str, Any]:
    try:
        made = dict(observation.snapshot())
    except (ValueError, HorovodInternalError):  # before init, at its end, between two worlds
        made = {"host": host_name(), "pid": os.getpid(), "time": time.time(), "now": {"state": "starting"}}
    return dict(made, samples=samples.counted(), where=stack_line.where(), stack=_stack())


def _stack() -> List[str]:
    """Where the main thread is, outermost first; cheap, without the lines of the sources.

    Should this process freeze, it is the last that is known of it.
    """
    ident = threading.main_thread().ident
    frame: Optional[FrameType] = sys._current_frames().get(ident) if ident is not None else None
    lines: List[str] = []
    while frame is not None and len(lines) < _STACK_DEPTH:
        code = frame.f_code
        lines.append(f"{code.co_filename}:{frame.f_lineno} in {code.co_name}")
        frame = frame.f_back
    return lines[::-1]
