"""Measure a spec on this host, without a service.

A worker makes the same runs in the same way, but with a lease, a heartbeat and a store.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from pydantic import JsonValue, ValidationError

from dyno import validation_messages
from dyno.artifact_store import is_artifact_name, sha256_of
from dyno.bench.contract import ResolvedSpec
from dyno.bench.devices.discovery import discover, missing_frameworks
from dyno.bench.devices.locks import DeviceTurn, HeldLocks, lock_paths
from dyno.bench.frameworks.isolation import isolating_variables
from dyno.bench.measure.regression_band import with_history
from dyno.bench.registry import registry, resolve
from dyno.bench.runner.failures import failure_of
from dyno.bench.runner.health_check import measured_peaks
from dyno.bench.runner.job_runs import JobRuns, RunContext, time_limit_s
from dyno.bench.runner.launcher import Launcher
from dyno.bench.runner.monitor import StopReason
from dyno.bench.runner.progress import JobProgress
from dyno.bench.runner.self_test import prove_fork
from dyno.bench.runner.variants import planned_times, variants_of
from dyno.errors import DeviceUnavailable, FieldError, InvalidSpec, RunFailed
from dyno.models.job import Holder, Progress, new_job_id
from dyno.models.result import Artifact, PartialMetrics, Phases, Result
from dyno.models.runner_protocol import ProgressFrame
from dyno.models.spec import Spec
from dyno.settings import Settings, load_settings

OnProgress = Callable[[Progress], object]
OnWait = Callable[[Holder], object]
_REPORT_EVERY_S = 0.25
_LOOK_AGAIN_S = 0.1  # at the locks of a device that another process uses
# Fields that need a service, and why.
_OF_A_SERVICE = {
    "webhook": "a service sends webhooks",
    "baseline": "a service keeps baselines",
    "baseline_allow": "a service keeps baselines",
}


def run(
    spec: Mapping[str, JsonValue] | Spec,
    device: str = "cpu",
    *,
    on_progress: OnProgress = lambda progress: None,
    artifacts: Path | None = None,
) -> Result:
    """The result of one spec on a device of this host: "cpu", "cpu:0-1", "gpu:0", "tpu" …

    The document is a service's, without a comparison with earlier results. Several specs on one device are faster with
    `Bench`. Raises the errors of `Bench` and `Bench.run`. Ctrl-C ends the runs.
    """
    with Bench(device) as bench:
        return bench.run(spec, on_progress=on_progress, artifacts=artifacts)


class Bench:
    """A device of this host, with processes that hold the frameworks ready. Use it as a context manager.

    The constructor raises DeviceUnavailable, FrameworkMissing and WorkloadFault. The calling program may have imported
    any framework: runs have their own processes. While another process measures on the device, `run` waits, and calls
    `on_wait` with the holder of the device. `device` has its peaks from the first run on.
    """

    def __init__(
        self,
        device: str = "cpu",
        *,
        emulate: str | None = None,
        settings: Settings | None = None,
        on_wait: OnWait = lambda holder: None,
    ) -> None:
        self._settings = settings or load_settings()
        self.device = discover(device, self._settings, emulate)
        if not self.device.frameworks:
            raise DeviceUnavailable(missing_frameworks(self.device.driven_as))
        self._workloads, self._on_wait = registry(), on_wait
        self._stack, self._is_prepared = ExitStack(), False

    def __enter__(self) -> Self:
        device, settings = self.device, self._settings
        variables = isolating_variables(device.driven_as, device.uuids)
        self._launcher = Launcher(settings.worker_start, device.cores, None, variables, settings.runner_env)
        self._stack.callback(self._launcher.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(
        self,
        spec: Mapping[str, JsonValue] | Spec,
        *,
        on_progress: OnProgress = lambda progress: None,
        artifacts: Path | None = None,
    ) -> Result:
        """The result of the spec. `artifacts`: a folder for the job's files, which are lost without it.

        Raises InvalidSpec and UnknownWorkload before anything runs, and RunFailed with the last output of a run.
        """
        resolved = resolve_here(spec, self._workloads)
        if errors := [*resolved.check_units(self.device), *resolved.refusals(self.device)]:
            raise InvalidSpec(errors)
        with self._turn(), local_files(artifacts) as files:
            self._prepare()
            return self._measured(resolved, files, on_progress)

    def _measured(self, resolved: ResolvedSpec, files: "LocalFiles", on_progress: OnProgress) -> Result:
        job_id, device = new_job_id(), self._launcher.describe(self.device)
        variants = variants_of(resolved.spec, self.device, self._workloads, lambda: files)
        context = RunContext(self.device, self._launcher, self._settings)
        observer = _Observer(JobProgress(planned_times(variants, self.device)), on_progress)
        limit_s = time_limit_s(variants, resolved.spec.timeout_s, self.device)
        early = JobRuns(job_id, context, observer, time.monotonic() + limit_s).run(variants)
        if early is not None:
            failure = failure_of(early.ended, limit_s, early.limits.stall_s)
            assert failure is not None, "nothing here cancels a run that has a record"
            log = f"\n{failure.log_tail}" if failure.log_tail else ""
            raise RunFailed(failure.failure_class, failure.reason, f"{failure.message}{log}")
        result, _ = with_history(variants[0].result(job_id, device), variants[0], ())
        return result.model_copy(update={"artifacts": files.artifacts()})

    def _prepare(self) -> None:
        """Before the first run, measure the peaks and find out whether runs can be forked, like a worker."""
        if self._is_prepared:
            return
        peak = measured_peaks(self._launcher, self.device, lock_paths(self.device, self._settings))
        self.device = self.device.model_copy(update={"peak": peak})
        prove_fork(self._launcher, self.device, self._settings)
        self._is_prepared = True

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the device for this process alone, as long as the block lasts."""
        turn, has_told = DeviceTurn(self.device, self._settings), False
        try:
            while not isinstance(holder := turn.take(), HeldLocks):
                if not has_told:
                    self._on_wait(holder)
                    has_told = True
                time.sleep(_LOOK_AGAIN_S)
            with holder:
                yield
        finally:
            turn.leave()


def resolve_here(spec: Mapping[str, JsonValue] | Spec, workloads: Mapping[str, Any] | None = None) -> ResolvedSpec:
    """The spec with its defaults. Raises UnknownWorkload, and InvalidSpec, also for fields that need a service."""
    if not isinstance(spec, Spec):
        try:
            spec = Spec.model_validate(spec)
        except ValidationError as invalid:
            raise InvalidSpec(validation_messages.field_errors(Spec, dict(spec), invalid, "")) from invalid
    of_service = [
        FieldError(f"/{name}", "needs-service", f"{why}; submit the spec to one")
        for name, why in _OF_A_SERVICE.items()
        if getattr(spec, name)
    ]
    if spec.params.get("weights"):
        of_service.append(FieldError("/params/weights", "needs-service", "a service keeps the files of other jobs"))
    if of_service:
        raise InvalidSpec(of_service)
    return resolve(spec, workloads)


class LocalFiles:
    """The files of one job in `scratch`; files that outlive the job are in `kept`. See `RunFiles`."""

    weights: Path | None = None

    def __init__(self, scratch: Path, kept: Path | None) -> None:
        self.scratch, self._kept = scratch, kept

    def empty(self) -> Path:
        folder = self.scratch / "artifacts"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    @contextmanager
    def room(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="run-", dir=self.scratch, ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def artifacts(self) -> list[Artifact]:
        """Copy the files of run 0 to the folder that keeps them; their addresses have the scheme `file:`."""
        if self._kept is None:
            return []
        self._kept.mkdir(parents=True, exist_ok=True)
        written = sorted((self.scratch / "artifacts").iterdir())
        fit = [path for path in written if path.is_file() and not path.is_symlink() and is_artifact_name(path.name)]
        copies = [Path(shutil.copy2(path, self._kept)).resolve() for path in fit]
        return [
            Artifact(name=path.name, bytes=path.stat().st_size, sha256=sha256_of(path), url=path.as_uri())
            for path in copies
        ]


@contextmanager
def local_files(kept: Path | None) -> Iterator[LocalFiles]:
    """Files of one job. Temporary files are deleted at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="dyno-bench-", ignore_cleanup_errors=True) as scratch:
        yield LocalFiles(Path(scratch), kept)


class _Observer:
    """Reports progress several times a second. It never stops a run: an exception from `on_progress` ends the job."""

    def __init__(self, progress: JobProgress, on_progress: OnProgress) -> None:
        self.progress, self._on_progress = progress, on_progress
        self._began_s = self.due_s = time.monotonic()

    def beat(self, frame: ProgressFrame | None, run: int) -> StopReason | None:
        now_s = time.monotonic()
        self.due_s = now_s + _REPORT_EVERY_S
        if (progress := self.progress.of(frame, run, now_s - self._began_s)) is not None:
            self._on_progress(progress)
        return None

    def run_begins(self, number: int) -> None: ...

    def add_log(self, data: bytes) -> None: ...

    def run_ended(self, phases: Phases, *, is_first: bool) -> None:
        self.progress.note_end(phases, time.monotonic() - self._began_s, is_first=is_first)

    def send_metrics(self, metrics: PartialMetrics) -> None: ...
