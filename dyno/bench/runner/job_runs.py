"""Make the runs of one job, one after the other, each in a new process. The caller passes the observer and the folders.

A job has one spec, or A/B variants with an optional A/A control. In a worker, the heartbeat extends the job's lease,
and the worker uploads the folders' files. `dyno.bench.run` does neither.
"""

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import JsonValue

from dyno.bench import contract
from dyno.bench.devices.locks import lock_paths, shared_lock_paths
from dyno.bench.measure import baseline_outcome, result_metrics, stopping_rule
from dyno.bench.measure.assemble import assemble
from dyno.bench.registry import resolve_stored
from dyno.bench.runner.launcher import Launcher
from dyno.bench.runner.limits import RunnerLimits
from dyno.bench.runner.monitor import HeartbeatSource, RunEnd, RunLimits, RunnerMonitor, StopReason, StopSwitch
from dyno.bench.runner.progress import JobProgress, RunTimes
from dyno.errors import InvalidSpec
from dyno.logging import event
from dyno.models.device import Device
from dyno.models.job import FailureClass
from dyno.models.result import PartialMetrics, Phases, Result, RunSamples, VariantName
from dyno.models.runner_protocol import RunRecord, RunRequest
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.tracing import Span, Tracer

_ENDS_THE_JOB = (StopReason.SUPERSEDED, StopReason.CANCEL)  # even if the run has a record
_LEAST_TIMEOUT_S = 600.0
ESTIMATE_FACTOR = 3  # the accuracy of an estimate


class RunFiles(Protocol):
    """The local files of one variant, deleted after the job. `scratch` holds all of them."""

    @property
    def scratch(self) -> Path: ...

    @property
    def weights(self) -> Path | None:
        """The file that the spec's `weights` name, on this host."""

    def empty(self) -> Path:
        """Empty the folder for the files of run 0, and return it."""

    def room(self) -> AbstractContextManager[Path]:
        """An empty folder for the temporary files of one run, deleted after the run."""


_LEAST_RUN_S = 0.01  # above 0, because times are divided by it
_NAMES: tuple[VariantName, ...] = ("first", "second", "control")


@dataclass
class FurtherRuns:
    """The total number of runs that the job's baseline requires; 0 if it is unknown or there is no baseline."""

    in_all: int = 0


@dataclass(frozen=True, eq=False)
class Variant(contract.ResolvedSpec):
    """One spec and the records of its runs so far. `name`: None for a job with a single spec.

    `repeats`: the variant that an A/A control repeats. The control reuses the params tuned by that variant's first run.
    """

    name: VariantName | None
    files: RunFiles
    records: list[RunRecord] = field(default_factory=list)
    repeats: "Variant | None" = None
    for_baseline: FurtherRuns = field(default_factory=FurtherRuns)

    @property
    def enough(self) -> bool:
        """Whether no further run is needed."""
        done = len(self.records)
        return done >= max(1, self.for_baseline.in_all) and stopping_rule.enough_runs(self.spec.measure, self.records)

    @property
    def most_runs(self) -> int:
        """The maximum number of runs. Once the first set of runs has ended, it is the number that this set requires."""
        measure = self.spec.measure
        first = self.records[: stopping_rule.first_set(measure)]
        is_fixed = len(first) == stopping_rule.first_set(measure)
        of_spec = stopping_rule.required_runs(measure, first) if is_fixed else measure.runs.max
        return max(of_spec, self.for_baseline.in_all)

    @property
    def tuned(self) -> dict[str, JsonValue]:
        """The parameters tuned by the first run of this variant, or of the variant that it repeats."""
        records = (self.repeats or self).records
        return records[0].tuned if records else {}

    def time_s(self, device: Device) -> float:
        """The estimated maximum time: the maximum number of runs, each with the maximum sampling time."""
        estimate, measure = self.estimate(device), self.spec.measure
        runs = max(estimate.runs(measure), measure.runs.max)
        if self.spec.baseline is not None:
            runs = max(runs, baseline_outcome.most_runs(self.spec))
        if measure.is_divided:  # a run that never settles warms up until its share of the budget is used up
            longest_s = max(estimate.run_s(measure), measure.budget_s / measure.runs.min)
        else:
            longest_s = estimate.start_s + measure.longest_s
        return runs * longest_s + estimate.train_s

    def times(self, device: Device) -> RunTimes:
        """The expected times of this variant's first run."""
        estimate = self.estimate(device)
        return RunTimes(max(estimate.run_s(self.spec.measure), _LEAST_RUN_S), estimate.train_s)

    def planned_runs(self, device: Device) -> int:
        """The expected number of runs: an estimate until the first runs decide how many runs fit in the budget."""
        is_open = len(self.records) < stopping_rule.first_set(self.spec.measure)
        return max(self.most_runs, self.estimate(device).runs(self.spec.measure)) if is_open else self.most_runs

    def result(self, job_id: str, device: Device) -> Result:
        return assemble(job_id, self, device, self.records)

    def metrics_so_far(self) -> PartialMetrics:
        """The figures of the runs that have ended."""
        specs, first = self.workload.metrics_for(self.params), stopping_rule.decided_by(self.spec.measure, self.records)
        metrics = [
            metric for metric in result_metrics.all_metrics(specs, self.records, first) if metric.value is not None
        ]
        return PartialMetrics(run=len(self.records), runs=self.most_runs, arm=self.name, metrics=metrics)

    def samples(self) -> list[RunSamples]:
        return [run.model_copy(update={"arm": self.name}) for run in result_metrics.raw_samples(self.records)]


def variants_of(
    spec: Spec, device: Device, workloads: Mapping[str, contract.Workload], new_files: Callable[[], RunFiles]
) -> list[Variant]:
    """The variants of a spec, in the order of their first runs.

    Raises UnknownWorkload, and InvalidSpec if this worker or its device can't run the spec.
    """
    variants: list[Variant] = []
    names: Sequence[VariantName | None] = _NAMES if len(spec.arms) > 1 else [None]
    for name, arm in zip(names, spec.arms, strict=False):
        resolved = resolve_stored(arm, workloads)
        if errors := resolved.check_units(device):
            raise InvalidSpec(errors)
        repeats = variants[0] if name == "control" else None
        variants.append(Variant(resolved.spec, resolved.workload, resolved.params, name, new_files(), repeats=repeats))
    return variants


def planned_times(variants: Sequence[Variant], device: Device) -> list[RunTimes]:
    """The expected times of all runs, in the order of `run_order`, if each variant makes its planned runs."""
    planned: list[RunTimes] = []
    for number in range(max(variant.planned_runs(device) for variant in variants)):
        waiting = [variant.times(device) for variant in variants if number < variant.planned_runs(device)]
        times = waiting if number == 0 else [variant._replace(train_s=0.0) for variant in waiting]
        planned += reversed(times) if number % 2 else times
    return planned


def run_order(variants: Sequence[Variant]) -> Iterator[Variant]:
    """The order of runs: rounds of all variants, every other round reversed, until each variant has enough runs."""
    for number in itertools.count():
        waiting = [variant for variant in variants if not variant.enough]
        if not waiting:
            return
        yield from reversed(waiting) if number % 2 else waiting


class Observer(HeartbeatSource, Protocol):
    """Observes the runs, and may stop them by the result of `beat`. `progress`: the progress of the whole job."""

    progress: JobProgress

    def run_begins(self, number: int) -> None:
        """Called before a run starts. `number` counts the job's runs from 0."""

    def add_log(self, data: bytes) -> object:
        """Called with output of the current run."""

    def run_ended(self, phases: Phases, *, is_first: bool) -> None:
        """Called after a run with a record. `is_first`: whether the run is the first run of its spec."""

    def send_metrics(self, metrics: PartialMetrics) -> None:
        """Called with the figures so far, if more runs follow."""


@dataclass(frozen=True)
class RunContext:
    """The context that all jobs of a device share. `clock`: monotonic seconds; the deadlines of `stop` refer to it."""

    device: Device
    launcher: Launcher
    settings: Settings
    stop: StopSwitch = field(default_factory=StopSwitch)
    clock: Callable[[], float] = time.monotonic
    traces: Tracer = field(default_factory=Tracer)


class RunWithoutRecord(NamedTuple):
    """The run that ended a job early. `number` counts all runs of the job from 0."""

    ended: RunEnd
    variant: Variant
    number: int
    limits: RunLimits


class JobRuns:
    """Makes the runs of one job. `has_enough`: called after a run if its variant has enough runs; it may add runs."""

    def __init__(
        self,
        job_id: str,
        context: RunContext,
        observer: Observer,
        deadline_s: float,
        has_enough: Callable[[Variant], None] = lambda variant: None,
    ) -> None:
        self._job_id, self._context, self._observer = job_id, context, observer
        self._deadline_s, self._has_enough = deadline_s, has_enough

    def run(self, variants: Sequence[Variant]) -> RunWithoutRecord | None:
        """Make all runs; their records are in the variants. Returns the run that ended the job early, if one did."""
        for number, variant in enumerate(run_order(variants)):
            limits = self._limits(variant)
            ended = self._run_once(variant, number, limits)
            if ended.record is None or ended.stopped_for in _ENDS_THE_JOB:
                return RunWithoutRecord(ended, variant, number, limits)
            variant.records.append(ended.record)
            if variant.enough:
                self._has_enough(variant)
            self._observer.run_ended(ended.record.summary.phases, is_first=len(variant.records) == 1)
            self._observer.progress.replan(planned_times(variants, self._context.device))
            if not all(other.enough for other in variants):  # else the result follows at once
                self._observer.send_metrics(variant.metrics_so_far())
        return None

    def _run_once(self, variant: Variant, number: int, limits: RunLimits) -> RunEnd:
        """Run one runner to its end.

        If the zygote dies before it forks the runner, try a new zygote. If the new zygote can't fork, spawn the runner.
        """
        ended = self._watch(variant, number, limits)
        if ended.exit.lost and _unforked(ended):
            ended = self._watch(variant, number, limits)
        refused = _unforked(ended)
        if refused is None or ended.exit.passing:  # on a full host, spawning would fail as well
            return ended
        if not self._context.launcher.fall_back(variant.spec.framework, refused):
            return ended
        event("fell-back-to-spawn", logging.WARNING, framework=variant.spec.framework, why=refused)
        return self._watch(variant, number, limits)

    def _watch(self, variant: Variant, number: int, limits: RunLimits) -> RunEnd:
        context, files = self._context, variant.files
        bounds = RunnerLimits(context.settings, context.launcher.cgroup, files.scratch)
        began_s = time.perf_counter()
        with (
            run_span(context.traces, number, variant.name) as span,
            files.room() as room,
            context.launcher.start(self._request(variant, room)) as runner,
        ):
            self._observer.run_begins(number)
            runner.log.pass_on = self._observer.add_log
            ended = RunnerMonitor(
                runner, number, limits, self._observer, context.stop, context.clock, bounds
            ).until_ended()
            ended = _with_overhead(ended, time.perf_counter() - began_s)
            note_run(span, ended)
        return ended

    def _request(self, variant: Variant, room: Path) -> RunRequest:
        device, settings, run = self._context.device, self._context.settings, len(variant.records)
        return RunRequest(
            job=self._job_id,
            spec=variant.spec,
            run=run,
            runs=variant.most_runs,
            device=device,
            lock_paths=lock_paths(device, settings),
            shared_lock_paths=shared_lock_paths(device, settings),
            data_dir=str(settings.data_dir) if settings.data_dir else None,
            artifact_dir=str(variant.files.empty()) if run == 0 and variant.name is None else None,
            scratch_dir=str(room),
            weights_path=str(variant.files.weights) if variant.files.weights else None,
            tuned=variant.tuned,
            share=stopping_rule.budget_share(variant.spec.measure),
        )

    def _limits(self, variant: Variant) -> RunLimits:
        """The limits of a run. A runner sends no frames during an execution, so it may be silent for three times the
        estimated time of its start and of one execution of each case."""
        settings, estimate = self._context.settings, variant.estimate(self._context.device)
        silent_s = ESTIMATE_FACTOR * (estimate.start_s + math.fsum(estimate.executions_s))
        return RunLimits(max(settings.stall_s, silent_s), settings.term_grace_s, self._deadline_s)


def time_limit_s(variants: Sequence[Variant], timeout_s: float | None, device: Device) -> float:
    """The time limit of a job: the spec's timeout, or three times the estimate, at least 600 s."""
    estimate_s = math.fsum(variant.time_s(device) for variant in variants)
    return timeout_s or max(_LEAST_TIMEOUT_S, ESTIMATE_FACTOR * estimate_s)


def _with_overhead(ended: RunEnd, wall_s: float) -> RunEnd:
    """`ended` with `overhead_s`, the part of `wall_s` that no other phase covers; see `dyno.models.result.Phases`."""
    if ended.record is None:
        return ended
    summary = ended.record.summary
    timed = summary.model_copy(update={"phases": summary.phases.with_overhead(wall_s)})
    return replace(ended, record=ended.record.model_copy(update={"summary": timed}))


def _unforked(ended: RunEnd) -> str | None:
    """Why the zygote didn't fork; None if it did, or if the run was stopped."""
    return ended.exit.refused if ended.start == "forked" and ended.stopped_for is None else None


def run_span(traces: Tracer, number: int, variant: str | None) -> AbstractContextManager[Span]:
    """The span of a run. `number` counts from 0, the span's attribute from 1. `variant`: the A/B variant of the run."""
    return traces.span("run", {"dyno.run": number + 1, "dyno.arm": variant})


def note_run(span: Span, ended: RunEnd) -> None:
    """Add to the span how the process was started, the durations of its phases, and the error of a failed run."""
    phases = ended.record.summary.phases.model_dump() if ended.record else {}
    span.note(
        {"dyno.process_start": ended.start, **{f"dyno.phase.{name}": seconds for name, seconds in phases.items()}},
        failed=None if ended.record or ended.stopped_for else _why(ended),
    )


def _why(ended: RunEnd) -> str:
    return ended.failed.message if ended.failed else FailureClass.INFRASTRUCTURE
