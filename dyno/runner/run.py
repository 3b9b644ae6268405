"""One run of one spec in this process, phase by phase."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from dyno.devices.clock import measure_clock_hz
from dyno.devices.device import Device
from dyno.devices.environment import environment
from dyno.devices.locks import hold
from dyno.errors import DeviceUnavailable, RunFailed
from dyno.frames import FirstOp, RunRecord, RunRequest
from dyno.frameworks.contract import Framework
from dyno.measure.sampling import Samples
from dyno.measure.summary import summarise
from dyno.result import ResultWarning, Training
from dyno.runner.memory import memory, reset_host_peak
from dyno.runner.phases import PhaseTimer
from dyno.runner.samples import take_samples
from dyno.runner.writer import FrameWriter
from dyno.settings import Settings
from dyno.workloads import validate_params, workload
from dyno.workloads.contract import BuildContext, Built, Verification

_LOCK_TIMEOUT_S = 10.0  # the last runner of this device may still be dying


@dataclass(frozen=True)
class _Measured:
    """What the phases of a run leave behind."""

    first_op_at_s: float
    training: Training | None
    samples: Samples
    disturbances: list[ResultWarning]
    clock_hz: float | None
    found: Verification


class Run:
    """`record` does it, once."""

    def __init__(self, request: RunRequest, framework: Framework, frames: FrameWriter, started_at_s: float) -> None:
        self._request = request
        self._device = request.device
        self._framework = framework
        self._frames = frames
        self._started_at_s = started_at_s
        self._timer = PhaseTimer(frames.report)

    def record(self) -> RunRecord:
        """All that was measured. Raises whatever goes wrong."""
        own_the_device(self._device, self._request.lock_paths)
        reset_host_peak()
        first_op_at_s = self._start_device()
        built = self._build()
        training = self._execute_first(built)
        samples, disturbances = take_samples(built.execute, self._request.spec.measure, self._device, self._frames)
        clock_hz = measure_clock_hz(self._device.cores[0]) if self._device.cores else None
        self._frames.report("verify")
        measured = _Measured(first_op_at_s, training, samples, disturbances, clock_hz, built.verify())
        return self._assembled(built.work, measured)

    def _start_device(self) -> float:
        """Load the framework and finish a first operation; when that was (`time.time()`)."""
        if self._request.process_start == "spawned":
            with self._timer.phase("import"):
                self._framework.load()
        else:
            self._framework.load()  # the zygote has imported it: nothing left to time
        with self._timer.phase("device"):
            kind = "cpu" if self._device.emulated else self._device.kind  # an emulated device is made of CPU cores
            self._framework.start(kind, self._cores(), self._request.spec.replicas)
        now_s = time.time()
        self._frames.write(FirstOp(at_s=now_s))
        return now_s

    def _build(self) -> Built:
        spec = self._request.spec
        chosen = workload(spec.workload)
        self._framework.seed(spec.seed)
        context = BuildContext(
            framework=self._framework,
            seed=spec.seed,
            run=self._request.run,
            cores=self._cores(),
            phase=self._timer.phase,
            report=self._frames.report,
            device=self._device,
            data_dir=_path(self._request.data_dir) or Settings().data_dir,
            replicas=spec.replicas,
            artifacts=_path(self._request.artifact_dir),
            weights=_path(self._request.weights_path),
            tuned=self._request.tuned,
        )
        return chosen.build(validate_params(chosen, spec.params), context)

    def _execute_first(self, built: Built) -> Training | None:
        with self._timer.phase("compile"):
            built.compile()
        with self._timer.phase("first_execution"):
            built.execute(1)
        if self._request.run > 0:
            return None
        return built.complete(self._timer.seconds("compile"), self._timer.seconds("first_execution"))

    def _cores(self) -> int:
        return len(self._device.cores) or len(os.sched_getaffinity(0))

    def _assembled(self, work: float, measured: _Measured) -> RunRecord:
        samples, found = measured.samples, measured.found
        return RunRecord(
            summary=summarise(
                samples,
                process_start=self._request.process_start,
                pid=os.getpid(),
                phases=self._timer.phases(),
                started_at_s=self._started_at_s,
                first_op_at_s=measured.first_op_at_s,
                clock_hz=measured.clock_hz,
            ),
            warmup=samples.warmup,
            samples=samples.samples,
            sample_cpu_s=samples.sample_cpu_s,
            work=work,
            warnings=[*found.warnings, *measured.disturbances],
            precision=found.precision,
            training=measured.training,
            memory=memory(self._framework, self._device.kind),
            environment=environment(),
            details=found.details,
            amounts=found.amounts,
            figures=found.figures,
            tuned=found.tuned,
        )


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def own_the_device(device: Device, lock_paths: list[str]) -> None:
    """Lock the device until this process ends, and stay on its cores. Raises RunFailed."""
    try:
        hold(lock_paths, _LOCK_TIMEOUT_S)
    except DeviceUnavailable as busy:
        raise RunFailed("infrastructure", "device_busy", busy.detail) from busy
    if not device.cores:
        return
    try:
        os.sched_setaffinity(0, device.cores)
    except OSError as error:
        detail = f"this process may not run on cores {device.cores}: {error}"
        raise RunFailed("infrastructure", "no_such_device", detail) from error
