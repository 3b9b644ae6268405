"""One attempt at a job: its runs, each in a fresh process, and the result assembled from them.

Before a result is written, it is compared with earlier results of the same work on devices of the same model.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import redis

from dyno.bench.contract import ResolvedSpec, Workload
from dyno.bench.measure import baseline_outcome
from dyno.bench.measure.differences import free_params
from dyno.bench.measure.peers import headline, with_history
from dyno.bench.measure.warnings import sorted_warnings
from dyno.bench.runner.job_runs import JobRuns, RunContext, Variant, planned_times, time_limit_s, variants_of
from dyno.bench.runner.launcher import Launcher
from dyno.bench.runner.monitor import RunEnd, RunLimits, StopReason, StopSwitch, failure_of, lost_device
from dyno.bench.runner.progress import JobProgress
from dyno.errors import InvalidSpec, RecordUnreadable, StoreUnavailable, UnknownWorkload
from dyno.logging import WORKER_LOG, event
from dyno.models.baseline import Baseline
from dyno.models.device import Device
from dyno.models.job import DEVICE_BUSY, WORKER_SHUTDOWN, BaselineOutcome, Failure, FailureClass
from dyno.models.result import Headline, Peer, Result
from dyno.settings import Settings
from dyno.store.eta import ExpectedDuration, duration_series, work_digest
from dyno.store.leases import Claim, Leases
from dyno.tracing import Tracer
from workers.artifact_upload import JobFiles, UploadedArtifacts
from workers.heartbeat import AttemptEnded, Heartbeat, background_call
from workers.outcome import Dropped, Failed, HandedBack, Outcome, Stopped, Succeeded


def check_history(result: Result, of: ResolvedSpec, leases: Leases) -> tuple[Result, Headline | None]:
    """The result, compared with earlier results by `with_history` if Redis is reachable, and the result's headline."""
    figure = headline(result, of.spec, of.params)
    if figure is None:
        return result, None
    return with_history(result, of, _read_history(figure.series, result.job, leases))


def _read_history(series: str, job_id: str, leases: Leases) -> list[Peer] | None:
    try:
        return leases.peers(series)
    except (StoreUnavailable, redis.RedisError) as error:
        event("peers-not-read", logging.WARNING, job=job_id, why=str(error))
        return None


class BaselineCheck:
    """Compares the results of an attempt with the baseline that its job was submitted with.

    If Redis becomes unreachable, the check uses the earlier results that it has read. If it has read none, the outcome
    is inconclusive: without earlier results, the interval would be too narrow.
    """

    def __init__(self, claim: Claim, leases: Leases) -> None:
        self._claim, self._leases = claim, leases
        self._baseline: Baseline | None = None
        self._peers: dict[str, list[Peer]] = {}

    def runs_to_settle(self, result: Result, of: ResolvedSpec, most: int) -> int:
        """The number of runs that the baseline needs; see `dyno.bench.measure.baseline_outcome`."""
        judged = self._judged(result, of)
        return len(result.runs) if isinstance(judged, str) else baseline_outcome.runs_to_settle(judged, most)

    def hold(self, result: Result, of: ResolvedSpec) -> Result:
        """The result with its baseline's outcome; unchanged for a job without a baseline."""
        if of.spec.baseline is None:
            return result
        judged = self._judged(result, of)
        if isinstance(judged, str):
            unread = baseline_outcome.without_figures(of.spec.baseline, judged)
            return result.model_copy(update={"baseline": unread})
        return baseline_outcome.with_outcome(judged)

    def _judged(self, result: Result, of: ResolvedSpec) -> baseline_outcome.JudgedResult | str:
        """The result with all data that the comparison needs, or the reason why it can't be compared."""
        try:
            self._baseline = self._baseline or self._leases.baseline(self._claim)
        except (StoreUnavailable, RecordUnreadable, redis.RedisError) as error:
            event("baseline-not-read", logging.WARNING, job=self._claim.job_id, why=str(error))
            return f"the worker couldn't read the baseline: {error}"
        if self._baseline is None:
            return "the job has no copy of its baseline"
        figure, own_headline = self._baseline.figure, headline(result, of.spec, of.params)
        for series in {figure and figure.series, own_headline and own_headline.series} - {None}:
            peers = _read_history(str(series), result.job, self._leases)
            if peers is None and series not in self._peers:
                return "the worker couldn't read earlier results of this work from the store"
            self._peers[str(series)] = self._peers[str(series)] if peers is None else peers
        sampled = {metric.name for metric in of.workload.metrics_for(of.params) if metric.sampled}
        free = free_params(self._baseline.metric, of.workload)
        return baseline_outcome.JudgedResult(self._baseline, of.spec, result, own_headline, sampled, self._peers, free)


def _failed(outcome: BaselineOutcome | None) -> bool:
    """Whether the result is worse than a baseline that was saved from an earlier job."""
    return outcome is not None and outcome.outcome == "fail" and outcome.job is not None


_LEAST_RUN_S = 0.01  # above 0, because times are divided by it
_SIGNAL_SPREAD_S = 0.5  # a TERM to all processes of a worker reaches them at slightly different times
_HEALTH_CHECK_PHASE = "second_look"
_KILLED = ("runner_killed", "runner_not_started")


@dataclass(frozen=True)
class WorkerContext:
    """The objects that a supervisor shares with its attempts.

    `clock` is monotonic, in seconds; the deadlines of `stop` use this clock. `gone` checks the device, and returns the
    reason why the device is gone, or None. A call of `gone` blocks if the driver blocks.
    """

    device: Device
    leases: Leases
    launcher: Launcher
    settings: Settings
    workloads: Mapping[str, Workload]
    stop: StopSwitch = field(default_factory=StopSwitch)
    clock: Callable[[], float] = time.monotonic
    gone: Callable[[], str | None] = lambda: None
    traces: Tracer = field(default_factory=Tracer)

    @property
    def of_runs(self) -> RunContext:
        """The part of the context that the runs need."""
        return RunContext(self.device, self.launcher, self.settings, self.stop, self.clock, self.traces)


class JobAttempt:
    """Runs one attempt. Call `run()` once; it returns the outcome, and writes only heartbeats to the store."""

    def __init__(self, claim: Claim, context: WorkerContext) -> None:
        self._claim, self._spec, self._context = claim, claim.spec, context
        self._heartbeat = Heartbeat(claim, context.leases, context.settings.heartbeat_s, context.clock, context.stop)
        self._baseline = BaselineCheck(claim, context.leases)
        self._began_s = context.clock()
        self._files: list[JobFiles] = []  # by variant

    def run(self) -> Outcome:
        if self._claim.cancel_requested:
            return Stopped()
        try:
            variants = variants_of(self._spec, self._context.device, self._context.workloads, self._new_files)
        except UnknownWorkload as error:
            return _unsupported("unknown_workload", error.detail)
        except InvalidSpec as error:
            return _unsupported("invalid_spec", error.detail)
        try:
            with ExitStack() as stack:
                for variant, files in zip(variants, self._files, strict=True):
                    stack.enter_context(files).prepare(variant.params, leaves_files=variant.name is None)
                return self._measure(variants)
        except AttemptEnded as early:
            return early.outcome
        except Exception as error:  # noqa: BLE001 - a bug in the worker: don't wait for the lease to expire
            WORKER_LOG.exception("attempt-broke job=%s", self._claim.job_id)
            message = f"the worker failed: {type(error).__name__}: {error}"
            return Failed(Failure(failure_class=FailureClass.INFRASTRUCTURE, reason="worker_error", message=message))

    def send_log(self) -> None:
        """Send the last output of the runners, before the outcome is written."""
        self._heartbeat.send_log()

    def _new_files(self) -> JobFiles:
        self._files.append(JobFiles(self._claim, self._heartbeat, self._context.leases, self._context.settings))
        return self._files[-1]

    def _measure(self, variants: Sequence[Variant]) -> Outcome:
        deadline_s = self._began_s + time_limit_s(variants, self._spec.timeout_s, self._context.device)
        expected = self._pace(variants)
        planned = planned_times(variants, self._context.device)
        self._heartbeat.progress = JobProgress(planned, self._likely_duration_s(expected))
        measurement = JobRuns(
            self._claim.job_id,
            self._context.of_runs,
            self._heartbeat,
            deadline_s,
            has_enough=lambda variant: self._plan_for_baseline(variant, deadline_s),
        )
        early = measurement.run(variants)
        return self._succeeded(variants, expected) if early is None else self._early(*early)

    def _plan_for_baseline(self, variant: Variant, deadline_s: float) -> None:
        """Decide, once per variant, how many runs the baseline requires; at most as many as fit into the time left."""
        done = len(variant.records)
        if self._spec.baseline is None or variant.for_baseline.in_all:
            return
        now_s = self._context.clock()
        each_s = max((now_s - self._began_s) / done, _LEAST_RUN_S)
        most = min(baseline_outcome.most_runs(variant.spec, done), done + int((deadline_s - now_s) / each_s / 2))
        result = variant.result(self._claim.job_id, self._context.launcher.describe(self._context.device))
        variant.for_baseline.in_all = self._baseline.runs_to_settle(result, variant, most)
        if variant.for_baseline.in_all > done:
            event("more-runs-for-baseline", job=self._claim.job_id, runs=variant.for_baseline.in_all)

    def _succeeded(self, variants: Sequence[Variant], expected: ExpectedDuration) -> Succeeded:
        """Assemble the result.

        Stores files for single specs only: the files of A/B variants would have the same names.
        """
        first = variants[0]
        kept = self._files[0].deliver(len(first.records) - 1) if first.name is None else UploadedArtifacts()
        device = self._context.launcher.describe(self._context.device)
        result, *others = (variant.result(self._claim.job_id, device) for variant in variants)
        result, own_headline = check_history(result, first, self._context.leases)
        result = self._baseline.hold(result, first)
        if own_headline is not None and _failed(result.baseline):
            own_headline = replace(own_headline, own=own_headline.own.model_copy(update={"failed": True}))
        warnings = sorted_warnings([*result.warnings, *kept.warnings])
        return Succeeded(
            result.model_copy(update={"artifacts": kept.artifacts, "warnings": warnings, "arms": others}),
            [sample for variant in variants for sample in variant.samples()],
            own_headline,
            expected,
        )

    def _likely_duration_s(self, expected: ExpectedDuration) -> float | None:
        """The duration of the attempt, estimated from earlier jobs, else from the budget; None without earlier jobs
        and budget. If the store can't be read now, earlier jobs aren't used.
        """
        by_budget = expected.expected_s if all(arm.measure.is_divided for arm in self._spec.arms) else None
        try:
            return self._context.leases.likely_duration_s(expected) or by_budget
        except (StoreUnavailable, redis.RedisError) as error:
            event("durations-not-read", logging.WARNING, job=self._claim.job_id, why=str(error))
            return by_budget

    def _pace(self, variants: Sequence[Variant]) -> ExpectedDuration:
        """The estimated duration of the attempt; the store records it together with the actual duration."""
        device = self._context.device
        expected_s = math.fsum(variant.estimate(device).in_all_s(variant.spec.measure) for variant in variants)
        return ExpectedDuration(duration_series(self._spec, device), expected_s, work_digest(self._spec))

    def _early(self, ended: RunEnd, variant: Variant, number: int, limits: RunLimits) -> Outcome:
        """The outcome of an attempt that ends early, with the run `ended`."""
        if ended.stopped_for is StopReason.SUPERSEDED:
            return Dropped()
        if ended.stopped_for is StopReason.CANCEL:
            return Stopped()
        if ended.stopped_for is StopReason.SHUTDOWN:
            return HandedBack(WORKER_SHUTDOWN)
        failure = failure_of(ended, limits.deadline_s - self._began_s, limits.stall_s)
        assert failure is not None
        if failure.reason == DEVICE_BUSY:  # another process uses the device, so the job is handed back
            event("device-busy", logging.WARNING, job=self._claim.job_id, why=failure.message)
            return HandedBack(DEVICE_BUSY)
        if failure.reason in _KILLED and self._context.stop.comes_within(_SIGNAL_SPREAD_S):
            return HandedBack(WORKER_SHUTDOWN)  # the signal to this worker also ended its runner or zygote
        if gone := background_call(lambda _: self._context.gone(), _HEALTH_CHECK_PHASE, number, self._heartbeat):
            failure = lost_device(gone, failure)
        event("run-failed", job=self._claim.job_id, run=number + 1, reason=failure.reason, message=failure.message)
        if variant.name is not None:
            failure = failure.model_copy(update={"message": f"the {variant.name} spec: {failure.message}"})
        return Failed(failure)


def _unsupported(reason: str, message: str) -> Failed:
    return Failed(Failure(failure_class=FailureClass.UNSUPPORTED, reason=reason, message=message))
