"""One attempt at a job: its runs, each in a fresh process, and the result assembled from them.

Before a result is written, it is compared with earlier results of the same work on devices of the same model.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import redis

from dyno.devices.device import Device
from dyno.devices.locks import lock_paths, shared_lock_paths
from dyno.errors import InvalidSpec, RecordUnreadable, StoreUnavailable, UnknownWorkload
from dyno.logging import Tracer
from dyno.measure import baseline_outcome, budget
from dyno.measure.compare_results import free_params
from dyno.measure.regression_band import headline, shows_level, with_band_check
from dyno.measure.repeatability import with_earlier_results
from dyno.measure.warnings import sorted_warnings
from dyno.models.baseline import Baseline
from dyno.models.job import DEVICE_BUSY, WORKER_SHUTDOWN, BaselineOutcome, Failure, FailureClass
from dyno.models.result import Headline, Peer, Result
from dyno.models.runner_protocol import RunRequest
from dyno.settings import Settings
from dyno.store.eta import ExpectedDuration, duration_series, work_digest
from dyno.store.leases import Claim, Leases
from dyno.workloads.contract import ResolvedSpec, Workload
from workers.artifact_upload import JobFiles, UploadedArtifacts
from workers.heartbeat import AttemptEnded, Heartbeat, JobProgress, background_call
from workers.launcher import Launcher
from workers.limits import RunnerLimits
from workers.log import LOG, event
from workers.monitor import RunEnd, RunLimits, RunnerMonitor, StopReason, StopSwitch
from workers.outcome import Dropped, Ending, Failed, HandedBack, Stopped, Succeeded, failure_of, lost_device
from workers.tracing import note_run, run_span
from workers.variants import Variant, planned_times, run_order, variants_of


def check_history(result: Result, of: ResolvedSpec, leases: Leases) -> tuple[Result, Headline | None]:
    """The result with the check against its peers and a prediction from them, and its figure for later results, or None
    if it must not be used.

    If Redis is unreachable, only this check is skipped; the result couldn't be written either.
    """
    own = headline(result, of.spec, of.params)
    if own is None:
        return result, None
    peers = _read_history(own.series, result.job, leases)
    sampled = {metric.name for metric in of.workload.metrics_for(of.params) if metric.sampled}
    predicted = with_earlier_results(result, own.own, peers or [], sampled)
    found = with_band_check(predicted, own.own, peers)
    return found, own if shows_level(found) else None


def _read_history(series: str, job_id: str, leases: Leases) -> list[Peer] | None:
    try:
        return leases.peers(series)
    except (StoreUnavailable, redis.RedisError) as error:
        event("peers-not-read", logging.WARNING, job=job_id, why=str(error))
        return None


class BaselineCheck:
    """Holds the results of an attempt against the baseline that its job was submitted with.

    If Redis becomes unreachable, what was read before counts. If nothing was, the outcome is inconclusive: without the
    earlier results, the interval would be too narrow.
    """

    def __init__(self, claim: Claim, leases: Leases) -> None:
        self._claim, self._leases = claim, leases
        self._baseline: Baseline | None = None
        self._peers: dict[str, list[Peer]] = {}

    def runs_to_settle(self, result: Result, of: ResolvedSpec, most: int) -> int:
        """See `dyno.measure.baseline_outcome`."""
        judged = self._judged(result, of)
        return len(result.runs) if isinstance(judged, str) else baseline_outcome.runs_to_settle(judged, most)

    def hold(self, result: Result, of: ResolvedSpec) -> Result:
        """The result with its outcome; as it is for a job without a baseline."""
        if of.spec.baseline is None:
            return result
        judged = self._judged(result, of)
        if isinstance(judged, str):
            unread = baseline_outcome.without_figures(of.spec.baseline, judged)
            return result.model_copy(update={"baseline": unread})
        return baseline_outcome.with_outcome(judged)

    def _judged(self, result: Result, of: ResolvedSpec) -> baseline_outcome.JudgedResult | str:
        """What is judged, or why nothing is."""
        try:
            self._baseline = self._baseline or self._leases.baseline(self._claim)
        except (StoreUnavailable, RecordUnreadable, redis.RedisError) as error:
            event("baseline-not-read", logging.WARNING, job=self._claim.job_id, why=str(error))
            return f"the worker couldn't read the baseline: {error}"
        if self._baseline is None:
            return "the job has no copy of its baseline"
        figure, own = self._baseline.figure, headline(result, of.spec, of.params)
        for series in {figure and figure.series, own and own.series} - {None}:
            peers = _read_history(str(series), result.job, self._leases)
            if peers is None and series not in self._peers:
                return "the worker couldn't read earlier results of this work from the store"
            self._peers[str(series)] = self._peers[str(series)] if peers is None else peers
        sampled = {metric.name for metric in of.workload.metrics_for(of.params) if metric.sampled}
        free = free_params(self._baseline.metric, of.workload)
        return baseline_outcome.JudgedResult(self._baseline, of.spec, result, own, sampled, self._peers, free)


def _failed(outcome: BaselineOutcome | None) -> bool:
    """Whether the result is slower than an earlier one, whose job the baseline is of."""
    return outcome is not None and outcome.outcome == "fail" and outcome.job is not None


_LEAST_TIMEOUT_S = 600.0
_ESTIMATE_FACTOR = 3  # the accuracy of an estimate
_LEAST_RUN_S = 0.01  # times are divided by it
_SIGNAL_SPREAD_S = 0.5  # a TERM to all processes of a worker doesn't reach them at the same moment
_HEALTH_CHECK_PHASE = "second_look"
_KILLED = ("runner_killed", "runner_not_started")


@dataclass(frozen=True)
class WorkerContext:
    """What a supervisor shares with its attempts. `clock`: monotonic, in seconds; the deadlines of `stop` refer to it.

    `gone`: checks the device and returns why it is gone, or None. It may block for as long as the driver does.
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


class JobAttempt:
    """Runs one attempt. Call `run()` once; it returns the ending, and writes only heartbeats to the store."""

    def __init__(self, claim: Claim, context: WorkerContext) -> None:
        self._claim, self._spec, self._context = claim, claim.spec, context
        self._heartbeat = Heartbeat(claim, context.leases, context.settings.heartbeat_s, context.clock, context.stop)
        self._baseline = BaselineCheck(claim, context.leases)
        self._began_s = context.clock()

    def run(self) -> Ending:
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
                for variant in variants:
                    stack.enter_context(variant.files).prepare(variant.params, leaves_files=variant.name is None)
                return self._measure(variants)
        except AttemptEnded as early:
            return early.ending
        except Exception as error:  # noqa: BLE001 - a bug in the worker: the job must not wait until its lease runs out
            LOG.exception("attempt-broke job=%s", self._claim.job_id)
            message = f"the worker failed: {type(error).__name__}: {error}"
            return Failed(Failure(failure_class=FailureClass.INFRASTRUCTURE, reason="worker_error", message=message))

    def send_log(self) -> None:
        """Send the last output of the runners, before the ending is written."""
        self._heartbeat.send_log()

    def _new_files(self) -> JobFiles:
        return JobFiles(self._claim, self._heartbeat, self._context.leases, self._context.settings)

    def _measure(self, variants: Sequence[Variant]) -> Ending:
        deadline_s = self._deadline_s(variants)
        expected = self._pace(variants)
        planned = planned_times(variants, self._context.device)
        self._heartbeat.progress = JobProgress(planned, self._likely_duration_s(expected))
        for number, variant in enumerate(run_order(variants)):
            limits = self._limits(variant, deadline_s)
            ended = self._run_once(variant, number, limits)
            if ending := self._early(ended, variant, number, limits):
                return ending
            assert ended.record is not None
            variant.records.append(ended.record)
            if variant.enough and self._spec.baseline is not None:
                self._plan_for_baseline(variant, deadline_s)
            self._heartbeat.run_ended(ended.record.summary.phases, is_first=len(variant.records) == 1)
            self._heartbeat.progress.replan(planned_times(variants, self._context.device))
            if not all(each.enough for each in variants):  # else the result follows at once
                self._heartbeat.send_metrics(variant.metrics_so_far())
        return self._succeeded(variants, expected)

    def _plan_for_baseline(self, variant: Variant, deadline_s: float) -> None:
        """Decide once how many runs the baseline requires, as far as the time lasts."""
        done = len(variant.records)
        if variant.for_baseline.in_all:
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

        Files are stored for single specs only: those of A/B variants would have the same names.
        """
        first = variants[0]
        kept = first.files.deliver(len(first.records) - 1) if first.name is None else UploadedArtifacts()
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
        """The duration of the attempt: by earlier jobs, else by the budget, else None.

        A store that can't be read now has no earlier jobs.
        """
        by_budget = expected.expected_s if all(arm.measure.is_divided for arm in self._spec.arms) else None
        try:
            return self._context.leases.likely_duration_s(expected) or by_budget
        except (StoreUnavailable, redis.RedisError) as error:
            event("durations-not-read", logging.WARNING, job=self._claim.job_id, why=str(error))
            return by_budget

    def _pace(self, variants: Sequence[Variant]) -> ExpectedDuration:
        """The estimated duration of the attempt; the store records it with the actual one."""
        device = self._context.device
        expected_s = math.fsum(variant.estimate(device).in_all_s(variant.spec.measure) for variant in variants)
        return ExpectedDuration(duration_series(self._spec, device), expected_s, work_digest(self._spec))

    def _early(self, ended: RunEnd, variant: Variant, number: int, limits: RunLimits) -> Ending | None:
        """The ending if this run ends the job, else None."""
        if ended.stopped_for is StopReason.SUPERSEDED:
            return Dropped()
        if ended.stopped_for is StopReason.CANCEL:
            return Stopped()
        if ended.record is not None:
            return None
        if ended.stopped_for is StopReason.SHUTDOWN:
            return HandedBack(WORKER_SHUTDOWN)
        failure = failure_of(ended, limits.deadline_s - self._began_s, limits.stall_s)
        assert failure is not None
        if failure.reason == DEVICE_BUSY:  # another worker's runner still uses it, so the attempt doesn't count
            event("device-busy", logging.WARNING, job=self._claim.job_id, why=failure.message)
            return HandedBack(DEVICE_BUSY)
        if failure.reason in _KILLED and self._context.stop.comes_within(_SIGNAL_SPREAD_S):
            return HandedBack(WORKER_SHUTDOWN)  # the signal that ends this worker also ended its runner or zygote
        if gone := background_call(lambda _: self._context.gone(), _HEALTH_CHECK_PHASE, number, self._heartbeat):
            failure = lost_device(gone, failure)
        event("run-failed", job=self._claim.job_id, run=number + 1, reason=failure.reason, message=failure.message)
        if variant.name is not None:
            failure = failure.model_copy(update={"message": f"the {variant.name} spec: {failure.message}"})
        return Failed(failure)

    def _run_once(self, variant: Variant, number: int, limits: RunLimits) -> RunEnd:
        """Run one runner to its end.

        If its zygote dies first, try a new zygote; if that can't fork, spawn the runner.
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
        context = self._context
        bounds = RunnerLimits(context.settings, context.launcher.cgroup, variant.files.scratch)
        began_s = time.perf_counter()
        with (
            run_span(context.traces, number, variant.name) as span,
            variant.files.room() as room,
            context.launcher.start(self._request(variant, room)) as runner,
        ):
            self._heartbeat.log.begin(number)
            runner.log.pass_on = self._heartbeat.log.add
            ended = RunnerMonitor(
                runner, number, limits, self._heartbeat, context.stop, context.clock, bounds
            ).until_ended()
            ended = _with_overhead(ended, time.perf_counter() - began_s)
            note_run(span, ended)
        return ended

    def _request(self, variant: Variant, room: Path) -> RunRequest:
        settings, run = self._context.settings, len(variant.records)
        return RunRequest(
            job=self._claim.job_id,
            spec=variant.spec,
            run=run,
            runs=variant.most_runs,
            device=self._context.device,
            lock_paths=lock_paths(self._context.device, settings),
            shared_lock_paths=shared_lock_paths(self._context.device, settings),
            data_dir=str(settings.data_dir) if settings.data_dir else None,
            artifact_dir=str(variant.files.empty()) if run == 0 and variant.name is None else None,
            scratch_dir=str(room),
            weights_path=str(variant.files.weights) if variant.files.weights else None,
            tuned=variant.tuned,
            share=budget.share(variant.spec.measure),
        )

    def _deadline_s(self, variants: Sequence[Variant]) -> float:
        """The deadline: the spec's timeout, or three times the estimate (at least 600 s), after the attempt's start."""
        estimate_s = math.fsum(variant.time_s(self._context.device) for variant in variants)
        return self._began_s + (self._spec.timeout_s or max(_LEAST_TIMEOUT_S, _ESTIMATE_FACTOR * estimate_s))

    def _limits(self, variant: Variant, deadline_s: float) -> RunLimits:
        """The limits of a run. A runner sends no frames during an execution, so a run may be silent for three times the
        estimate of one."""
        settings, one = self._context.settings, variant.estimate(self._context.device)
        return RunLimits(
            max(settings.stall_s, _ESTIMATE_FACTOR * (one.start_s + sum(one.executions_s))),
            settings.term_grace_s,
            deadline_s,
        )


def _with_overhead(ended: RunEnd, wall_s: float) -> RunEnd:
    """`ended` with the part of the run's `wall_s` that no other phase covers; see `dyno.models.result.Phases`."""
    if ended.record is None:
        return ended
    summary = ended.record.summary
    timed = summary.model_copy(update={"phases": summary.phases.with_overhead(wall_s)})
    return replace(ended, record=ended.record.model_copy(update={"summary": timed}))


def _unforked(ended: RunEnd) -> str | None:
    """Why the zygote didn't fork; None if it did, or if the run was stopped."""
    return ended.exit.refused if ended.start == "forked" and ended.stopped_for is None else None


def _unsupported(reason: str, message: str) -> Failed:
    return Failed(Failure(failure_class=FailureClass.UNSUPPORTED, reason=reason, message=message))
