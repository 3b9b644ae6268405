"""Hold the specs of one attempt with their runs: a single spec, or A/B variants with an optional A/A control."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from dyno.bench import contract
from dyno.bench.measure import baseline_outcome, result_metrics, stopping_rule
from dyno.bench.measure.assemble import assemble
from dyno.bench.registry import resolve
from dyno.bench.runner.progress import RunTimes
from dyno.errors import InvalidSpec
from dyno.models.device import Device
from dyno.models.result import PartialMetrics, Result, RunSamples, VariantName
from dyno.models.runner_protocol import RunRecord
from dyno.models.spec import Spec


class RunFiles(Protocol):
    """The local files of one variant, deleted after the job. `scratch` holds all of them."""

    @property
    def scratch(self) -> Path: ...

    @property
    def weights(self) -> Path | None:
        """The file that the spec's `weights` name, on this host."""

    def empty(self) -> Path:
        """The folder for the files of run 0, emptied."""

    def room(self) -> AbstractContextManager[Path]:
        """An empty folder for the temporary files of one run, deleted after it."""


_LEAST_RUN_S = 0.01  # times are divided by it
_NAMES: tuple[VariantName, ...] = ("first", "second", "control")


@dataclass
class FurtherRuns:
    """The number of runs that the job's baseline requires in all; 0 if it is unknown or there is no baseline."""

    in_all: int = 0


@dataclass(frozen=True, eq=False)
class Variant(contract.ResolvedSpec):
    """One spec and the records of its runs so far. `name`: None for a job with a single spec.

    `repeats`: the variant that an A/A control repeats. The control reuses the params that its first run tuned.
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
        """The maximum number of runs: once the first set has ended, the number that it requires."""
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
        """The estimated maximum time: the maximum number of runs, of which each samples as long as allowed."""
        estimate, measure = self.estimate(device), self.spec.measure
        runs = max(estimate.runs(measure), measure.runs.max)
        if self.spec.baseline is not None:
            runs = max(runs, baseline_outcome.most_runs(self.spec))
        if measure.is_divided:  # a run that never settles warms up until its share is over
            longest_s = max(estimate.run_s(measure), measure.budget_s / measure.runs.min)
        else:
            longest_s = estimate.start_s + measure.longest_s
        return runs * longest_s + estimate.train_s

    def times(self, device: Device) -> RunTimes:
        """The expected times of this variant's first run."""
        estimate = self.estimate(device)
        return RunTimes(max(estimate.run_s(self.spec.measure), _LEAST_RUN_S), estimate.train_s)

    def planned_runs(self, device: Device) -> int:
        """The expected number of runs: by the estimate, until the first runs show how many runs the budget pays for."""
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
        resolved = resolve(arm, workloads)
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
