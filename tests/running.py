"""Make runs in this process, as a zygote's child does: frames over a pipe, the record, the result of a job."""

from __future__ import annotations

import contextlib
import os
import threading

import pytest

from dyno.bench.measure.assemble import assemble
from dyno.bench.registry import resolve
from dyno.bench.runner import run
from dyno.models.runner_protocol import FRAME, DoneFrame, FailedFrame, Frame, RunRecord, RunRequest


@contextlib.contextmanager
def pipe():
    """Yields the writing end and a list, which has all frames after the block."""
    reading, writing = os.pipe()
    frames: list[Frame] = []

    def read():
        with os.fdopen(reading, "rb") as stream:
            frames.extend(FRAME.validate_json(line) for line in stream)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield writing, frames
    finally:
        os.close(writing)
        reader.join(timeout=60)


def in_process(request):
    with pipe() as (fd, frames):
        run.main(request, fd)
    return frames


def record_of(frames):
    assert isinstance(frames[-1], DoneFrame), frames[-1]
    return frames[-1].record


def failure_of(frames):
    assert isinstance(frames[-1], FailedFrame), frames[-1]
    return frames[-1]


def job_of(workload, spec, device):
    """The result of the spec's minimum number of runs. The workload needn't be registered."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "resolve", lambda asked: resolve(asked, {asked.workload: workload}))
        records: list[RunRecord] = []
        for place in range(spec.measure.processes.min):
            request = RunRequest(job="job_1", spec=spec, run=place, runs=spec.measure.processes.min, device=device)
            tuned = records[0].tuned if records else {}
            records.append(record_of(in_process(request.model_copy(update={"tuned": tuned}))))
    return assemble("job_1", resolve(spec, {spec.workload: workload}), device, records)


def codes(result):
    return {raised.code for raised in result.warnings}


def started(built):
    """The built workload, compiled and executed once."""
    built.compile()
    built.execute(1)
    return built


def training_of(built):
    """The training of the built workload, from its start to its end."""
    return started(built).complete(0.0, 0.0)
