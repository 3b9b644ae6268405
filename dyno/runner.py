"""Run one spec once, in this process, and say over a pipe how it went.

Started two ways: a zygote's forked child calls `main`; `python -P -m dyno.runner` is a process of its own.
"""

from __future__ import annotations

import argparse
import os
import time
import traceback
from pathlib import Path

from dyno.devices.environment import environment
from dyno.devices.locks import hold
from dyno.errors import DeviceUnavailable, RunFailed
from dyno.frames import Done, FirstOp, RunRecord, RunRequest, Started
from dyno.frameworks import framework as framework_named
from dyno.frameworks.contract import Framework
from dyno.measure.checks import clock_skew
from dyno.measure.sampling import Samples
from dyno.measure.summary import summarise
from dyno.result import Training
from dyno.run_failures import failed
from dyno.run_frames import FrameWriter
from dyno.run_memory import memory, reset_host_peak
from dyno.run_phases import PhaseTimer
from dyno.run_samples import take_samples
from dyno.settings import Settings
from dyno.workloads import validate_params, workload
from dyno.workloads.contract import BuildContext, Built

_LOCK_TIMEOUT_S = 10.0  # the last runner of this device may still be dying


def main(request: RunRequest, frames_fd: int) -> None:
    """Run `request` and write its frames to `frames_fd`; the last one is `done` or `failed`.

    Never raises: the caller ends the process with `os._exit` (a framework's own teardown costs 0.5 s).
    """
    frames = FrameWriter(frames_fd)
    framework = None
    try:
        started = Started(pid=os.getpid(), at_s=time.time())
        frames.write(started)
        framework = framework_named(request.spec.framework)
        frames.write(Done(record=Run(request, framework, frames, started.at_s).record()))
    except BaseException as error:  # noqa: BLE001 - whatever ends a run must reach the supervisor as a frame
        if not isinstance(error, RunFailed):
            traceback.print_exc()
        frames.write(failed(error, framework))


class Run:
    """One run of one spec, phase by phase."""

    def __init__(self, request: RunRequest, framework: Framework, frames: FrameWriter, started_at_s: float) -> None:
        self._request = request
        self._framework = framework
        self._frames = frames
        self._started_at_s = started_at_s
        self._timer = PhaseTimer(frames.report)

    def record(self) -> RunRecord:
        """Run it; all that was measured. Raises whatever goes wrong."""
        own_the_device(self._request)
        reset_host_peak()
        first_op_at_s = self._start_device()
        built = self._build()
        training = self._first(built)
        request = self._request
        samples = take_samples(built.execute, request.spec.measure, request.device.kind, self._frames)
        return self._assemble(built, samples, training, first_op_at_s)

    def _start_device(self) -> float:
        request = self._request
        if request.process_start == "spawned":
            with self._timer.phase("import"):
                self._framework.load()
        else:
            self._framework.load()  # the zygote has imported it: nothing left to time
        with self._timer.phase("device"):
            self._framework.start(request.device.kind, len(request.device.cores) or os.cpu_count() or 1)
        now_s = time.time()
        self._frames.write(FirstOp(at_s=now_s))
        return now_s

    def _build(self) -> Built:
        request = self._request
        chosen = workload(request.spec.workload)
        self._framework.seed(request.spec.seed)
        data_dir = Path(request.data_dir) if request.data_dir else Settings().data_dir
        context = BuildContext(
            framework=self._framework,
            seed=request.spec.seed,
            run=request.run,
            cores=len(request.device.cores),
            phase=self._timer.phase,
            report=self._frames.report,
            device=request.device,
            data_dir=data_dir,
        )
        return chosen.build(validate_params(chosen, request.spec.params), context)

    def _first(self, built: Built) -> Training | None:
        with self._timer.phase("compile"):
            built.compile()
        with self._timer.phase("first_execution"):
            built.execute(1)
        if self._request.run > 0:
            return None
        return built.complete(self._timer.seconds("compile"), self._timer.seconds("first_execution"))

    def _assemble(self, built: Built, samples: Samples, training: Training | None, first_op_at_s: float) -> RunRecord:
        self._frames.report("verify")
        found = built.verify()
        skew = clock_skew(samples.wall_s, samples.epoch_s)
        return RunRecord(
            summary=summarise(
                samples,
                process_start=self._request.process_start,
                pid=os.getpid(),
                phases=self._timer.phases(),
                started_at_s=self._started_at_s,
                first_op_at_s=first_op_at_s,
            ),
            warmup=samples.warmup,
            samples=samples.samples,
            sample_cpu_s=samples.sample_cpu_s,
            work=built.work,
            warnings=found.warnings if skew is None else [*found.warnings, skew],
            precision=found.precision,
            training=training,
            memory=memory(self._framework, self._request.device.kind),
            environment=environment(),
            details=found.details,
            amounts=found.amounts,
            figures=found.figures,
        )


def own_the_device(request: RunRequest) -> None:
    """Lock the device until this process ends, and stay on its cores. Raises RunFailed."""
    try:
        hold(request.lock_paths, _LOCK_TIMEOUT_S)
    except DeviceUnavailable as busy:
        raise RunFailed("infrastructure", "device_busy", busy.detail) from busy
    if request.device.cores:
        try:
            os.sched_setaffinity(0, request.device.cores)
        except OSError as error:
            detail = f"this process may not run on cores {request.device.cores}: {error}"
            raise RunFailed("infrastructure", "no_such_device", detail) from error


def _read_request(fd: int) -> RunRequest:
    with os.fdopen(fd, "rb") as stream:
        return RunRequest.model_validate_json(stream.read())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="dyno.runner")
    parser.add_argument("--request-fd", type=int, required=True)
    parser.add_argument("--frames-fd", type=int, required=True)
    arguments = parser.parse_args()
    main(_read_request(arguments.request_fd), arguments.frames_fd)
    os._exit(0)
