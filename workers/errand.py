"""What blocks for long, such as a transfer, on its own thread: the lease is kept and orders are heard meanwhile."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from dyno.models.runner_protocol import ProgressFrame
from workers.ending import Dropped, Ending, HandedBack, Stopped
from workers.equipment import WorkerContext
from workers.pulse import Pulse
from workers.stop import StopReason

T = TypeVar("T")


class AttemptEnded(Exception):
    """The attempt ends before it has a result, and how."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(type(ending).__name__)
        self.ending = ending


class CallTimedOut(Exception):
    """Nothing was heard of it for as long as it may take at most: a mount, for one, can hang for ever."""


def errand(
    work: Callable[[threading.Event], T],
    phase: str,
    run: int,
    heartbeat: Pulse,
    context: WorkerContext,
    within_s: float = math.inf,
) -> T:
    """What `work(abandoned)` returns or raises.

    Raises AttemptEnded where the job is canceled, lost or handed back first, and CallTimedOut after `within_s`: then
    `abandoned` is set, and the outcome of `work` is ignored.
    """
    abandoned, outcome = threading.Event(), Future[T]()
    deadline_s = context.clock() + within_s
    threading.Thread(target=_fulfil, args=(outcome, work, abandoned), name=phase, daemon=True).start()
    try:
        while not outcome.done():
            wait([outcome], max(0.0, min(heartbeat.due_s, deadline_s) - context.clock()))
            if context.clock() >= heartbeat.due_s:
                _beat(phase, run, heartbeat)
            if not outcome.done() and context.clock() >= context.stop.deadline_s:
                raise AttemptEnded(HandedBack("worker_shutdown"))
            if not outcome.done() and context.clock() >= deadline_s:
                raise CallTimedOut(f"no end after {within_s:.0f} s")
        return outcome.result()
    finally:
        abandoned.set()


def _fulfil(outcome: Future[T], work: Callable[[threading.Event], T], abandoned: threading.Event) -> None:
    try:
        outcome.set_result(work(abandoned))
    except BaseException as error:  # noqa: BLE001 - whoever waits for the outcome raises it
        outcome.set_exception(error)


def _beat(phase: str, run: int, heartbeat: Pulse) -> None:
    order = heartbeat.beat(ProgressFrame(phase=phase), run)
    if order is StopReason.SUPERSEDED:
        raise AttemptEnded(Dropped())
    if order is StopReason.CANCEL:
        raise AttemptEnded(Stopped())
