"""Make one run of one spec in this process, phase by phase.

The module also sets up the empty caches of a cold start, times the phases and reads the process's peak memory.
"""

import math
import os
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from dyno.bench.contract import BuildContext, Built, HasCases, ResolvedSpec, UnderLoad, Verification
from dyno.bench.devices import cpu_speed, locks, sensors
from dyno.bench.devices.environment import environment
from dyno.bench.frameworks import framework as framework_named
from dyno.bench.frameworks.interface import Framework
from dyno.bench.measure import latency
from dyno.bench.measure.sampling import summarise
from dyno.bench.measure.stopping_rule import StoppingRule
from dyno.bench.measure.warnings import warning
from dyno.bench.registry import resolve
from dyno.bench.runner.case_sampling import CaseSamples, SampledCase, case_records, sample_cases, without_gc
from dyno.bench.runner.checks import CheckedCase, CheckFindings, checked_cases, remeasured_peaks, run_checks
from dyno.bench.runner.frame_writer import FrameWriter, failure_frame
from dyno.errors import DeviceUnavailable, RunFailed
from dyno.models.device import PeakFigure
from dyno.models.job import DEVICE_BUSY, NO_SUCH_DEVICE
from dyno.models.result import Memory, Phases, ResultWarning, RunSummary, Training
from dyno.models.runner_protocol import DoneFrame, FirstOpFrame, RunRecord, RunRequest, StartedFrame
from dyno.processes import host_peak_bytes, reset_host_peak

# The variables for the compilation caches of CUDA's driver, JAX, Triton, PyTorch's compiler and Numba.
_CACHE_FOLDERS = (
    *("CUDA_CACHE_PATH", "JAX_COMPILATION_CACHE_DIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"),
    "NUMBA_CACHE_DIR",
)
# XLA and TensorFlow take cache folders among other options: --tf_xla_persistent_cache_directory=…
_CACHE_OPTIONS = ("XLA_FLAGS", "TF_XLA_FLAGS", "LIBTPU_INIT_ARGS")
_CACHE = re.compile(r"--(\w*(?:cache|load_autotune)\w*)=[\"']?([^\s\"']+)")


def empty_caches(folder: Path) -> None:
    """Point the compilation caches of this process and its children to new folders below `folder`.

    Call it before a framework is loaded. Cache options in an administrator's flags stay in effect; see `warm_caches`.
    """
    for name in _CACHE_FOLDERS:
        cache = folder / name.lower()
        cache.mkdir(parents=True)
        os.environ[name] = str(cache)


def warm_caches(environ: Mapping[str, str]) -> ResultWarning | None:
    """WARM_CACHE if a cache that `environ` names isn't empty. The warning omits paths."""
    caches = [(name, environ[name]) for name in _CACHE_FOLDERS if environ.get(name)]
    for variable in _CACHE_OPTIONS:
        for option, path in _CACHE.findall(environ.get(variable, "")):
            caches.append((f"{variable}: --{option}", path))
    warm: list[JsonValue] = [name for name, path in caches if _not_empty(Path(path))]
    return warning("WARM_CACHE", caches=warm) if warm else None


def _not_empty(path: Path) -> bool:
    try:
        return any(path.iterdir()) if path.is_dir() else path.stat().st_size > 0
    except OSError:  # missing, or unreadable for this process
        return False


def peak_memory(framework: Framework, kind: str) -> Memory:
    """Peak host and device memory of this process, with a reason if there is no device figure."""
    if kind == "cpu":
        reason = "a CPU has no memory of its own: host_peak_bytes is all of it"
        return Memory(host_peak_bytes=host_peak_bytes(), reason=reason)
    peak_bytes = framework.device_peak_bytes(kind)
    reason_absent = None if peak_bytes is not None else f"{framework.name} doesn't count the memory of a {kind}"
    return Memory(host_peak_bytes=host_peak_bytes(), device_peak_bytes=peak_bytes, reason=reason_absent)


class PhaseTimer:
    """Times named blocks. Repeated phases add up; a phase that never ran is null. The time of an inner block is part of
    the inner phase only.
    """

    def __init__(self, report: Callable[[str], None], clock: Callable[[], float] = time.perf_counter) -> None:
        self._report = report
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._inside_s = 0.0  # the time of the phases inside the current one

    @contextmanager
    def phase(self, name: str, *, reported: bool = True) -> Iterator[None]:
        """Time the block as phase `name`, a field of `Phases` without `_s`. Report the phase if `reported`."""
        if f"{name}_s" not in Phases.model_fields:
            raise ValueError(f"unknown phase {name}; use a field of Phases without _s")
        if reported:
            self._report(name)
        began_s, before_s = self._clock(), self._inside_s
        self._inside_s = 0.0
        try:
            yield
        finally:
            took_s = self._clock() - began_s
            self._seconds[name] = self._seconds.get(name, 0.0) + took_s - self._inside_s
            self._inside_s = before_s + took_s

    def seconds(self, name: str) -> float:
        """How long the phase took; 0 if it never ran."""
        return self._seconds.get(name, 0.0)

    def phases(self) -> Phases:
        return Phases(**{f"{name}_s": seconds for name, seconds in self._seconds.items()})


_LOCK_TIMEOUT_S = 10.0  # the device's previous runner may still be exiting


@dataclass(frozen=True)
class _Measured:
    """The results of a run's phases."""

    first_op_at_s: float
    training: Training | None
    run_samples: CaseSamples
    cases: list[SampledCase]
    clock_hz: float | None
    verification: Verification
    memory_peak: Memory
    peak: dict[str, PeakFigure]
    findings: CheckFindings
    calls: latency.CallReadings


class Run:
    """One run of a request; call `record` once."""

    def __init__(self, request: RunRequest, framework: Framework, frames: FrameWriter, started_at_s: float) -> None:
        self._request = request
        self._device = request.device
        self._framework = framework
        self._frames = frames
        self._started_at_s, self._began_s = started_at_s, time.perf_counter()
        self._times_calls = False
        self._timer = PhaseTimer(frames.report)
        self._found_before: list[ResultWarning] = []
        self._training_sensors: sensors.SensorRecorder | None = None

    def record(self) -> RunRecord:
        """Execute the run and return its measurements. Any error propagates."""
        if self._request.scratch_dir is not None:
            tempfile.tempdir = self._request.scratch_dir  # deleted with the run, even if the runner is killed
        own_the_device(self._request)
        if self._request.spec.measure.cold_start:
            empty_caches(Path(tempfile.mkdtemp(prefix="caches-")))
            warm = warm_caches(os.environ)
            self._found_before = [] if warm is None else [warm]
        reset_host_peak()
        first_op_at_s = self._start_device()
        resolved = resolve(self._request.spec)
        built = self._build(resolved)
        loops = any(spec.loop for spec in resolved.workload.metrics_for(resolved.params))
        self._times_calls = loops or isinstance(built, UnderLoad)
        with sensors.sensing(self._device) as source:
            training = self._execute_first(built, source)
            samples, cases = sample_cases(built, self._rule, self._device, source, self._frames, self._framework)
        clock_hz = self._clock_hz(samples)
        memory_peak = peak_memory(self._framework, self._device.driven_as)  # before the checks allocate memory
        calls = self._calls(resolved, built)
        self._frames.report("verify")
        checked = built.verify()
        examined = self._cases_to_check(resolved, built, samples, cases, checked)
        peak, findings = remeasured_peaks(self._device, examined), self._run_checks(examined)
        return self._assembled(
            built.work,
            _Measured(first_op_at_s, training, samples, cases, clock_hz, checked, memory_peak, peak, findings, calls),
        )

    def _rule(self, cases: int) -> StoppingRule:
        """The rule of the next case. The `cases` that are left divide the rest of the run's share of the budget."""
        share, measure = self._request.share, self._request.spec.measure
        if share is not None:
            spent_s = time.perf_counter() - self._began_s - self._timer.seconds("training")
            loops_s = latency.OF_SHARE * share.time_s if self._times_calls else 0.0
            # The first run also tunes params by measuring, but keeps at least half of its share for samples.
            least_s = share.time_s / 2 if self._request.run == 0 else 0.0
            share = share.model_copy(update={"time_s": max(least_s, share.time_s - loops_s - spent_s) / cases})
        return StoppingRule.of(measure, self._device.kind, share)

    def _start_device(self) -> float:
        """Load the framework and finish a first operation; returns the time of its end (`time.time()`)."""
        if self._request.process_start == "spawned":
            with self._timer.phase("import"):
                self._framework.load()
        else:
            self._framework.load()  # the zygote has imported it, so there is no import to time
        with self._timer.phase("device"):
            self._framework.start(self._device.driven_as, self._cores(), self._request.spec.replicas)
        now_s = time.time()
        self._frames.write(FirstOpFrame(at_s=now_s))
        return now_s

    def _build(self, resolved: ResolvedSpec) -> Built:
        spec = resolved.spec
        self._framework.seed(spec.seed)
        context = BuildContext(
            framework=self._framework,
            seed=spec.seed,
            run=self._request.run,
            cores=self._cores(),
            phase=self._timer.phase,
            report=self._report,
            device=self._device,
            data_dir=_path(self._request.data_dir),
            replicas=spec.replicas,
            artifacts=_path(self._request.artifact_dir),
            weights=_path(self._request.weights_path),
            tuned=self._request.tuned,
        )
        return resolved.workload.build(resolved.params, context)

    def _report(self, phase: str, completed: int = 0, total: int | None = None, unit: str = "samples") -> None:
        if self._training_sensors is not None:
            self._training_sensors.look()
        self._frames.report(phase, completed, total, unit)

    def _execute_first(self, built: Built, source: sensors.SensorSource) -> Training | None:
        if self._request.run == 0:
            self._training_sensors = watched = sensors.SensorRecorder(source)
        with self._timer.phase("compile"):
            built.compile()
        with self._timer.phase("first_execution"):
            built.execute(1)
        if self._request.run > 0:
            return None
        with self._timer.phase("training", reported=False):
            training = built.complete(self._timer.seconds("compile"), self._timer.seconds("first_execution"))
        self._training_sensors = None
        return training and training.model_copy(update={"sensors": watched.over(0)})

    def _calls(self, resolved: ResolvedSpec, built: Built) -> latency.CallReadings:
        """The latency of single calls, if the workload has latency metrics."""
        if not self._times_calls:
            return latency.CallReadings()
        if isinstance(built, UnderLoad):
            self._frames.report("latency")
            with without_gc():
                built.answer_queries(self._load_s(), self._request.spec.seed + self._request.run)
            return latency.CallReadings()
        cases = {case.name: case.execute for case in built.cases} if isinstance(built, HasCases) else {}
        earlier_rates = self._request.tuned.get(latency.RATES)
        with without_gc():
            return latency.measure_calls(
                cases or {"": built.execute},
                getattr(resolved.params, "rate_per_s", None),
                earlier_rates if isinstance(earlier_rates, dict) else {},
                self._request.spec.seed + self._request.run,
                self._loop_s(2 * max(1, len(cases))),
                latency.HostCallClock(),
                lambda: self._frames.report("latency"),
            )

    def _load_s(self) -> float:
        """The time to answer queries: a part of the run's share of the budget."""
        share = self._request.share
        if share is None:
            return min(latency.MOST_S, self._request.spec.measure.longest_s)
        return min(latency.MOST_LOAD_S, max(latency.LEAST_S, latency.OF_SHARE * share.time_s))

    def _loop_s(self, loops: int) -> float:
        """The duration of each loop of calls. All loops together get a part of the run's share of the budget."""
        share = self._request.share
        if share is None:
            return min(latency.MOST_S, self._request.spec.measure.longest_s)
        return min(latency.MOST_S, max(latency.LEAST_S, latency.OF_SHARE * share.time_s / loops))

    @staticmethod
    def _cases_to_check(
        resolved: ResolvedSpec,
        built: Built,
        run_samples: CaseSamples,
        cases: Sequence[SampledCase],
        checked: Verification,
    ) -> list[CheckedCase]:
        declared = resolved.workload.flops(resolved.params) if checked.flops is None else checked.flops
        dtype = getattr(resolved.params, "dtype", "float32")
        return checked_cases(built, run_samples, cases, declared, dtype, checked.bytes)

    def _run_checks(self, examined: Sequence[CheckedCase]) -> CheckFindings:
        """Check only the first run: all runs execute the same work."""
        framework, findings = self._framework, CheckFindings()
        if self._request.run == 0:
            findings = run_checks(framework, self._device, examined, lambda: self._frames.report("verify"))
        if framework.traced() is None:
            reason = f"{framework.name} doesn't report what it compiles"
            findings.unchecked |= dict.fromkeys(("COMPILE_IN_TIMING", "RETRACED"), reason)
        return findings

    def _clock_hz(self, taken: CaseSamples) -> float | None:
        if self._device.driven_as != "cpu":
            return taken.sensors.clocks_hz.get("sm")
        return cpu_speed.measure_clock_hz(self._device.cores[0]) if self._device.cores else None

    def _cores(self) -> int:
        return len(self._device.cores) or len(os.sched_getaffinity(0))

    def _assembled(self, work: float, measured: _Measured) -> RunRecord:
        samples, checked = measured.run_samples.samples, measured.verification
        return RunRecord(
            summary=self._summary(measured.run_samples, measured, self._phases(measured)),
            warmup=samples.warmup,
            samples=samples.samples,
            sample_cpu_s=samples.sample_cpu_s,
            work=work,
            warnings=[
                *self._found_before,
                *checked.warnings,
                *measured.run_samples.disturbances,
                *measured.findings.raised,
            ],
            unchecked=checked.unchecked | measured.findings.unchecked,
            verified=sorted(checked.verified),
            precision=checked.precision,
            training=measured.training,
            memory=measured.memory_peak,
            environment=environment(self._device.driven_as) | {"framework": self._framework.name},
            details=checked.details | ({"latency": measured.calls.details} if measured.calls.details else {}),
            amounts=checked.amounts,
            figures=checked.figures,
            tuned=checked.tuned | ({latency.RATES: measured.calls.rates_per_s} if measured.calls.details else {}),
            calls=measured.calls.quantiles,
            flops=checked.flops,
            bytes=checked.bytes,
            params=checked.params,
            peak=measured.peak,
            cases=case_records(measured.cases, lambda of_case, first_s: self._of_case(of_case, measured, first_s)),
        )

    def _phases(self, measured: _Measured) -> Phases:
        absent = {"training_s"} if measured.training is None else set()
        cases_s = [case.seconds for case in measured.cases[1:]]
        timed = self._timer.phases().model_dump(exclude=absent)
        return Phases(**{**timed, "cases_s": math.fsum(cases_s) if cases_s else None})

    def _of_case(self, taken: CaseSamples, measured: _Measured, first_execution_s: float | None) -> RunSummary:
        run_phases = self._phases(measured)
        phases = run_phases if first_execution_s is None else Phases(first_execution_s=first_execution_s)
        return self._summary(taken, measured, phases)

    def _summary(self, taken: CaseSamples, measured: _Measured, phases: Phases) -> RunSummary:
        return summarise(
            taken.samples,
            process_start=self._request.process_start,
            pid=os.getpid(),
            phases=phases,
            started_at_s=self._started_at_s,
            first_op_at_s=measured.first_op_at_s,
            clock_hz=measured.clock_hz,
            sensors=taken.sensors,
            core_shares=taken.core_shares,
        )


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def own_the_device(request: RunRequest) -> None:
    """Lock the device until this process ends, and pin the process to its cores. Raises RunFailed."""
    device = request.device
    try:
        locks.hold_locks(request.lock_paths, _LOCK_TIMEOUT_S, request.shared_lock_paths, request.job)
    except DeviceUnavailable as busy:
        raise RunFailed("infrastructure", DEVICE_BUSY, busy.detail) from busy
    if not device.cores:
        return
    try:
        os.sched_setaffinity(0, device.cores)
    except OSError as error:
        detail = f"this process can't be pinned to cores {device.cores}: {error}"
        raise RunFailed("infrastructure", NO_SUCH_DEVICE, detail) from error


def main(request: RunRequest, frames_fd: int) -> None:
    """Run `request` and write its frames to `frames_fd`; the last frame is `done` or `failed`.

    Never raises: the caller ends the process with `os._exit` (a framework's own teardown costs 0.5 s). The process
    holds the device's locks until then.
    """
    frames = FrameWriter(frames_fd)
    framework = None
    try:
        started = StartedFrame(pid=os.getpid(), at_s=time.time())
        frames.write(started)
        framework = framework_named(request.spec.framework)
        frames.write(DoneFrame(record=Run(request, framework, frames, started.at_s).record()))
    except BaseException as error:  # noqa: BLE001 - every error must reach the supervisor as a frame
        if not isinstance(error, RunFailed):
            traceback.print_exc()
        frames.write(failure_frame(error, framework))
