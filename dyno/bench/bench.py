"""Measure a spec on this host, without a service.

A worker makes the same runs in the same way, but with a lease, a heartbeat and a store.
"""

import logging
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
from dyno.bench.frameworks.visible_devices import isolating_variables
from dyno.bench.measure.peers import with_history
from dyno.bench.measure.warnings import sorted_warnings, warning
from dyno.bench.registry import registry, resolve
from dyno.bench.runner.health_check import prove_fork, with_measured_peaks
from dyno.bench.runner.job_runs import JobRuns, RunContext, planned_times, time_limit_s, variants_of
from dyno.bench.runner.launcher import Launcher
from dyno.bench.runner.limits import host_share_bytes, runner_cgroup
from dyno.bench.runner.monitor import StopReason, StopSwitch, failure_of
from dyno.bench.runner.progress import JobProgress
from dyno.errors import FieldError, FrameworkMissing, InvalidSpec, RunFailed
from dyno.formatting import format_quantity
from dyno.logging import event
from dyno.models.device import fits
from dyno.models.job import Holder, Progress, new_job_id
from dyno.models.result import Artifact, PartialMetrics, Phases, Result, ResultWarning
from dyno.models.runner_protocol import ProgressFrame
from dyno.models.spec import DeviceSelector, Spec
from dyno.settings import Settings, load_settings

OnProgress = Callable[[Progress], object]
OnWait = Callable[[Holder], object]
_REPORT_EVERY_S = 0.25
_LOOK_AGAIN_S = 0.1  # pause between two attempts to lock a device that another process uses
# Fields that need a service, and why.
_NEEDS_SERVICE = {
    "webhook": "a service sends webhooks",
    "baseline": "a service keeps baselines",
    "baseline_allow": "a service keeps baselines",
}


def log_wait(holder: Holder) -> None:
    """Log that another process has the device."""
    event("device-held", logging.WARNING, why=str(holder))


_TWO_SPECS = FieldError("/against", "needs-service", "a service runs two specs in turns; submit them to one")


def run(
    spec: Mapping[str, JsonValue] | Spec,
    device: str = "cpu",
    *,
    on_progress: OnProgress = lambda progress: None,
    on_wait: OnWait = log_wait,
    artifacts: Path | str | None = None,
) -> Result:
    """The result of one spec on a device of this host: "cpu", "cpu:0-1", "gpu:0", "tpu" …

    The result has the same form as a service's, but isn't compared with earlier results. `Bench` is faster for several
    specs on one device. Raises the errors of `Bench` and `Bench.run`. Ctrl-C ends the runs.
    """
    with Bench(device, on_wait=on_wait) as bench:
        return bench.run(spec, on_progress=on_progress, artifacts=artifacts)


class Bench:
    """A device of this host, with processes that hold the frameworks ready. Use it as a context manager.

    The constructor raises DeviceUnavailable, FrameworkMissing and WorkloadFault. The calling program may have imported
    any framework: runs have their own processes. While another process measures on the device, `run` waits, and calls
    `on_wait` with the holder of the device. `device` has its peaks after the first run.
    """

    def __init__(
        self,
        device: str = "cpu",
        *,
        emulate: str | None = None,
        settings: Settings | None = None,
        on_wait: OnWait = log_wait,
    ) -> None:
        self._settings = settings or load_settings()
        self.device = discover(device, self._settings, emulate)
        if not self.device.frameworks:
            raise FrameworkMissing(missing_frameworks(self.device.driven_as))
        self._workloads, self._on_wait = registry(), on_wait
        self._stack, self._is_open = ExitStack(), False

    def __enter__(self) -> Self:
        device, settings = self.device, self._settings
        cgroup = runner_cgroup(host_share_bytes(settings), settings.runner_max_tasks)
        variables = isolating_variables(device.driven_as, device.uuids)
        self._launcher = Launcher(settings.worker_start, device.cores, cgroup, variables, settings.runner_env)
        self._stack.callback(self._launcher.close)
        self._stop = StopSwitch()
        self._stack.callback(self._stop.close)
        self._is_open, self._is_prepared = True, False
        return self

    def __exit__(self, *_: object) -> None:
        self._is_open = False
        self._stack.close()

    def run(
        self,
        spec: Mapping[str, JsonValue] | Spec,
        *,
        on_progress: OnProgress = lambda progress: None,
        artifacts: Path | str | None = None,
    ) -> Result:
        """The result of the spec. `artifacts`: a folder for the job's files; without a folder they are deleted.

        Raises InvalidSpec and UnknownWorkload before anything runs, and RunFailed with the last output of a run.
        """
        if not self._is_open:
            raise RuntimeError("use `with Bench(...) as bench:`, and call `bench.run` inside the block")
        resolved = resolve_here(spec, self._workloads)
        self.check(resolved)
        with self._turn(), local_files(None if artifacts is None else Path(artifacts)) as files:
            self._prepare()
            return self._measured(resolved, files, on_progress)

    def check(self, resolved: ResolvedSpec) -> None:
        """Raises InvalidSpec if the device, or the software installed here, can't run the spec."""
        device, spec = self.device, resolved.spec
        errors = [*resolved.check_units(device), *resolved.refusals(device)]
        if spec.device != DeviceSelector() and not fits(spec.device, device):
            errors.append(FieldError("/device", "other-device", f"this bench measures on {device.full_id}"))
        supported = resolved.workload.frameworks
        able = [name for name in supported if name in device.frameworks]
        if spec.framework not in able:
            of = f"{spec.workload} supports {', '.join(supported)}; installed here: {', '.join(able) or 'none of them'}"
            errors.append(FieldError("/framework", "framework-unsupported", of))
        needed_bytes = resolved.estimate(device).memory_bytes
        if needed_bytes > device.memory_bytes:
            needed, there = (format_quantity(size, "B") for size in (needed_bytes, device.memory_bytes))
            errors.append(
                FieldError("/params", "exceeds-memory", f"the job needs about {needed}; the device has {there}")
            )
        if errors:
            raise InvalidSpec(errors)

    def _measured(self, resolved: ResolvedSpec, files: "LocalFiles", on_progress: OnProgress) -> Result:
        job_id, device = new_job_id(), self._launcher.describe(self.device)
        variants = variants_of(resolved.spec, self.device, self._workloads, lambda: files)
        context = RunContext(self.device, self._launcher, self._settings, self._stop)
        observer = _Observer(JobProgress(planned_times(variants, self.device)), on_progress)
        limit_s = time_limit_s(variants, resolved.spec.timeout_s, self.device)
        failed_run = JobRuns(job_id, context, observer, time.monotonic() + limit_s).run(variants)
        if failed_run is not None:
            failure = failure_of(failed_run.ended, limit_s, failed_run.limits.stall_s)
            assert failure is not None, "nothing here cancels a run that has a record"
            log = f"\n{failure.log_tail}" if failure.log_tail else ""
            raise RunFailed(failure.failure_class, failure.reason, f"{failure.message}{log}")
        result, _ = with_history(variants[0].result(job_id, device), variants[0], ())
        kept, warnings = files.keep()
        return result.model_copy(update={"artifacts": kept, "warnings": sorted_warnings([*result.warnings, *warnings])})

    def _prepare(self) -> None:
        """Before the first run, measure the peaks and test whether runners can be forked, as a worker does."""
        if self._is_prepared:
            return
        locks = lock_paths(self.device, self._settings)
        self.device = with_measured_peaks(self._launcher, self.device, locks)
        prove_fork(self._launcher, self.device, self._settings)
        self._is_prepared = True

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Lock the device for this process during the block."""
        turn, reported = DeviceTurn(self.device, self._settings), None
        try:
            while not isinstance(holder := turn.take(), HeldLocks):
                if holder != reported:
                    self._on_wait(holder)
                    reported = holder
                time.sleep(_LOOK_AGAIN_S)
            with holder:
                yield
        finally:
            turn.leave()


def resolve_here(spec: Mapping[str, JsonValue] | Spec, workloads: Mapping[str, Any] | None = None) -> ResolvedSpec:
    """The spec with its defaults. Raises UnknownWorkload or InvalidSpec. Fields that need a service are invalid."""
    if not isinstance(spec, Spec):
        if not isinstance(spec, Mapping):
            raise InvalidSpec([FieldError("", "not-an-object", "a spec is a mapping of fields")])
        if "against" in spec:
            raise InvalidSpec([_TWO_SPECS])
        try:
            spec = Spec.model_validate(spec)
        except ValidationError as invalid:
            raise InvalidSpec(validation_messages.field_errors(Spec, dict(spec), invalid, "")) from invalid
    of_service = [
        FieldError(f"/{name}", "needs-service", f"{why}; submit the spec to one")
        for name, why in _NEEDS_SERVICE.items()
        if getattr(spec, name)
    ]
    if len(spec.arms) > 1:
        of_service.append(_TWO_SPECS)
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

    def keep(self) -> tuple[list[Artifact], list[ResultWarning]]:
        """Copy the files of run 0 to the folder that keeps them; their addresses have the scheme `file:`.

        The measurement is complete by then, so a file that can't be kept only causes a warning.
        """
        kept, lost = list[Artifact](), list[JsonValue]()
        written = [] if self._kept is None else sorted((self.scratch / "artifacts").iterdir())
        for path in written:
            try:
                if path.is_symlink() or not path.is_file() or not is_artifact_name(path.name):
                    raise OSError("it is no regular file with a plain name")
                assert self._kept is not None, "else nothing is written"
                copy = Path(shutil.copy2(path, self._kept)).resolve()
                size_bytes, digest = copy.stat().st_size, sha256_of(copy)
                kept.append(Artifact(name=copy.name, bytes=size_bytes, sha256=digest, url=copy.as_uri()))
            except OSError as error:
                lost.append({"name": ascii(path.name)[1:-1], "why": error.strerror or str(error)})
        return kept, [warning("ARTIFACTS_NOT_STORED", count=len(lost), files=lost)] if lost else []


@contextmanager
def local_files(kept: Path | None) -> Iterator[LocalFiles]:
    """Files of one job. Temporary files are deleted at the end of the block. Raises OSError for an unusable `kept`."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dyno-bench-", ignore_cleanup_errors=True) as scratch:
        yield LocalFiles(Path(scratch), kept)


class _Observer:
    """Reports progress several times a second. It stops no run itself, but an exception from `on_progress` does."""

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
