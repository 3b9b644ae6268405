import errno
import os
import threading

import pytest

from dyno.bench.frameworks.tensorflow import TensorFlow
from dyno.bench.runner.frame_writer import PROGRESS_EVERY_S, FrameWriter, failure_frame
from dyno.errors import DatasetDamaged, DeviceUnavailable, FieldError, FrameworkMissing, InvalidSpec, RunFailed
from dyno.models.job import FailureClass
from dyno.models.runner_protocol import FRAME, FailedFrame, ProgressFrame, StartedFrame


class _Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def _read(fd):
    with os.fdopen(fd, "rb") as stream:
        frames = [FRAME.validate_json(line) for line in stream]
    assert all(isinstance(frame, ProgressFrame) for frame in frames)
    return [frame for frame in frames if isinstance(frame, ProgressFrame)]


def test_progress_is_written_at_most_every_half_second_but_a_new_phase_at_once():
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


def test_a_frame_larger_than_the_pipe_arrives_whole():
    reading, writing = os.pipe()
    frame = FailedFrame(failure_class=FailureClass.BENCHMARK, reason="workload_error", message="x" * 300_000)
    received: list[bytes] = []

    def read():
        with os.fdopen(reading, "rb") as stream:
            received.extend(stream)

    reader = threading.Thread(target=read)
    reader.start()
    FrameWriter(writing).write(frame)
    os.close(writing)
    reader.join(timeout=60)
    assert [FRAME.validate_json(line) for line in received] == [frame]


def test_a_pipe_without_a_reader_is_not_an_error():
    reading, writing = os.pipe()
    os.close(reading)
    FrameWriter(writing).write(StartedFrame(pid=1, at_s=0.0))
    os.close(writing)


@pytest.mark.parametrize(
    ("error", "failure_class", "reason", "message"),
    [
        (MemoryError("2 TiB"), "resource", "out_of_memory", "2 TiB"),
        (RunFailed("benchmark", "nonfinite_loss", "the loss became nan"), "benchmark", "nonfinite_loss", "loss became"),
        (DatasetDamaged("t10k: too short"), "benchmark", "dataset_damaged", "t10k: too short"),
        (FrameworkMissing("no module"), "unsupported", "framework_missing", "no module"),
        (DeviceUnavailable("no gpu"), "unsupported", "no_such_device", "no gpu"),
        (InvalidSpec([FieldError("/params/n", "x", "is wrong")]), "unsupported", "invalid_spec", "/params/n: is wrong"),
        (OSError(errno.ENOSPC, "No space left on device"), "resource", "disk_full", "No space left"),
        (OSError(errno.EIO, "Input/output error"), "benchmark", "workload_error", "Input/output"),
        (ZeroDivisionError("division by zero"), "benchmark", "workload_error", "ZeroDivisionError: division by zero"),
        (AssertionError(), "benchmark", "workload_error", "AssertionError"),
        (KeyboardInterrupt(), "benchmark", "workload_error", "KeyboardInterrupt"),
    ],
)
def test_every_error_that_ends_a_run_has_a_class_and_a_reason(error, failure_class, reason, message):
    frame = failure_frame(error, TensorFlow())
    assert (frame.failure_class, frame.reason) == (failure_class, reason)
    assert message in frame.message


def test_a_run_that_fails_before_loading_its_framework_has_a_class_too():
    assert failure_frame(MemoryError(), None).reason == "out_of_memory"
