"""A runner as its supervisor sees it: frames, a log, and the zygote's word on how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from dyno.models.runner_protocol import FRAME, DoneFrame, FailedFrame, FirstOpFrame, ProgressFrame, StartedFrame
from workers.log_tail import LogTail

AnyFrame = StartedFrame | FirstOpFrame | ProgressFrame | DoneFrame | FailedFrame

_READ_BYTES = 65536
_LINE_BYTES = 64 * 1024 * 1024  # a record with 100,000 samples takes 10 MB


@dataclass(frozen=True)
class Exit:
    """How a runner ended: its exit code or signal, or `lost` because the zygote died and the runner with it.

    `refused` says why it was never begun, where the zygote wouldn't or couldn't; `passing`: only for the moment.
    """

    code: int | None = None
    signal: int | None = None
    lost: bool = False
    refused: str | None = None
    passing: bool = False


@dataclass
class Runner:
    """One process that runs one spec once. Descriptors never block.

    `kill_zygote` is for one without a pid yet, or whose end isn't told.
    """

    start: Literal["forked", "spawned"]
    frames_fd: int
    status_fd: int
    log: LogTail
    kill_zygote: Callable[[], None]
    zygote_pid: int | None = None
    pid: int | None = None
    exit: Exit | None = None
    frames_open: bool = True
    _frames: bytearray = field(default_factory=bytearray)
    _status: bytes = b""

    def read_frames(self) -> list[AnyFrame] | None:
        """The frames that have arrived; None: nothing to read now. A line that is no frame is left out."""
        try:
            data = os.read(self.frames_fd, _READ_BYTES)
        except BlockingIOError:
            return None
        if not data:
            self.frames_open = False
            return None
        self._frames += data
        lines = self._frames.split(b"\n") if b"\n" in data else [self._frames]
        self._frames = bytearray() if len(lines[-1]) > _LINE_BYTES else lines[-1]
        return [frame for line in lines[:-1] if (frame := _parse(line)) is not None]

    def read_status(self) -> None:
        """Take in what the zygote says: sets `pid`, then `exit`."""
        data = os.read(self.status_fd, _READ_BYTES)
        *lines, self._status = (self._status + data).split(b"\n")
        for line in lines:
            self._learn(json.loads(line))
        if not data and self.exit is None:
            began = self.pid is not None
            self.exit = Exit(lost=True, refused=None if began else "the zygote died before it had forked")

    def _learn(self, word: dict[str, int | str]) -> None:
        if "pid" in word:
            self.pid = int(word["pid"])
        elif "refused" in word:
            self.exit = Exit(refused=str(word["refused"]), passing=bool(word.get("passing")))
        else:
            code = os.waitstatus_to_exitcode(int(word["status"]))
            self.exit = Exit(signal=-code) if code < 0 else Exit(code=code)

    def send(self, number: signal.Signals) -> None:
        """Signal the runner's whole process group; a runner that hasn't begun takes its zygote with it."""
        if self.exit is not None:
            return
        if self.pid is None:
            self.kill_zygote()
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def give_up(self) -> None:
        """End its zygote: of a runner that even KILL doesn't end, or whose end the zygote doesn't tell."""
        if self.exit is None:
            self.kill_zygote()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.send(signal.SIGKILL)  # only what an exception left running
        for fd in (self.frames_fd, self.status_fd):
            os.close(fd)
        self.log.close()


def _parse(line: bytes | bytearray) -> AnyFrame | None:
    try:
        return FRAME.validate_json(line)
    except ValueError:
        return None
