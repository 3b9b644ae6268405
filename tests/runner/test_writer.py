from __future__ import annotations

import os
import threading

from dyno.models.job import FailureClass
from dyno.models.runner_protocol import FRAME, FailedFrame, ProgressFrame, StartedFrame
from dyno.runner.writer import PROGRESS_EVERY_S, FrameWriter


class _Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def _read(fd: int) -> list[ProgressFrame]:
    with os.fdopen(fd, "rb") as stream:
        frames = [FRAME.validate_json(line) for line in stream]
    assert all(isinstance(frame, ProgressFrame) for frame in frames)
    return [frame for frame in frames if isinstance(frame, ProgressFrame)]


def test_progress_is_written_at_most_every_half_second_but_a_new_phase_at_once() -> None:
    reading, writing = os.pipe()
    clock = _Clock()
    frames = FrameWriter(writing, clock)
    frames.report("warmup", 0)
    frames.report("warmup", 1)
    frames.report("sampling", 1, 20)
    clock.now_s += PROGRESS_EVERY_S * 0.9
    frames.report("sampling", 2, 20)
    clock.now_s += PROGRESS_EVERY_S * 0.2
    frames.report("sampling", 3, 20)
    os.close(writing)
    assert [(frame.phase, frame.completed) for frame in _read(reading)] == [
        ("warmup", 0),
        ("sampling", 1),
        ("sampling", 3),
    ]


def test_a_frame_larger_than_the_pipe_arrives_whole() -> None:
    reading, writing = os.pipe()
    frame = FailedFrame(failure_class=FailureClass.BENCHMARK, reason="workload_error", message="x" * 300_000)
    received: list[bytes] = []

    def read() -> None:
        with os.fdopen(reading, "rb") as stream:
            received.extend(stream)

    reader = threading.Thread(target=read)
    reader.start()
    FrameWriter(writing).write(frame)
    os.close(writing)
    reader.join(timeout=60)
    assert [FRAME.validate_json(line) for line in received] == [frame]


def test_a_pipe_that_nobody_reads_any_more_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    FrameWriter(writing).write(StartedFrame(pid=1, at_s=0.0))
    os.close(writing)
