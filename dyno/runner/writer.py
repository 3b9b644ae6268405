"""How a runner speaks: whole frames, one JSON object a line, over the pipe to whoever started it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from dyno.models.runner_protocol import DoneFrame, FailedFrame, FirstOpFrame, ProgressFrame, StartedFrame

# Progress is for people; a frame costs about 0.1 ms of the runner's time and wakes the supervisor on its core.
PROGRESS_EVERY_S = 0.5


class FrameWriter:
    """Writes frames to `fd`. A pipe nobody reads any more is no error: the runner is about to be ended."""

    def __init__(self, fd: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._fd = fd
        self._clock = clock
        self._phase = ""
        self._reported_s = 0.0

    def write(self, frame: StartedFrame | FirstOpFrame | ProgressFrame | DoneFrame | FailedFrame) -> None:
        """One whole line, in as many writes as the pipe's buffer asks for."""
        line = memoryview(frame.model_dump_json().encode() + b"\n")
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except BrokenPipeError:
            return

    def report(self, phase: str, completed: int = 0, total: int | None = None, unit: str = "samples") -> None:
        """Progress, at most every 0.5 s; a new phase at once."""
        now_s = self._clock()
        if phase == self._phase and now_s - self._reported_s < PROGRESS_EVERY_S:
            return
        self._phase, self._reported_s = phase, now_s
        self.write(ProgressFrame(phase=phase, completed=completed, total=total, unit=unit))
