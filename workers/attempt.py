"""One attempt at one job: its runs, each in a fresh process, and the result they make together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from pydantic import JsonValue

from dyno.devices.locks import lock_paths, shared_lock_paths
from dyno.errors import InvalidSpec, UnknownWorkload
from dyno.frames import CaseRecord, RunRecord, RunRequest
from dyno.job import Failure, FailureClass
from dyno.measure.assemble import assemble
from dyno.measure.processes import enough
from dyno.store.leases import Claim
from dyno.workloads import check_units, validate_params
from dyno.workloads.contract import Params, Workload
from workers.artifacts import JobFiles
from workers.ending import Dropped, Ending, Failed, HandedBack, Stopped, Succeeded
from workers.equipment import Equipment
from workers.errand import EndsHere
from workers.log import LOG, event
from workers.outcome import failure_of
from workers.pulse import Pulse
from workers.stop import StopReason
from workers.watch import Ended, Limits, Watch

_LEAST_TIMEOUT_S = 600.0
_ESTIMATE_FACTOR = 3  # an estimate is honest to about that
_SIGNAL_SPREAD_S = 0.5  # a TERM to every process of a worker reaches them one by one
_KILLED = ("runner_killed", "runner_not_started")


class Attempt:
    """`run()` once; it says how the job ends and writes nothing itself but heartbeats."""

    def __init__(self, claim: Claim, equipment: Equipment) -> None:
        self._claim, self._spec, self._equipment = claim, claim.spec, equipment
        self._pulse = Pulse(claim, equipment.leases, equipment.settings.heartbeat_s, equipment.clock)
        self._began_s = equipment.clock()
        self._tuned: dict[str, JsonValue] = {}

    def run(self) -> Ending:
        if self._claim.cancel_requested:
            return Stopped()
        try:
            workload, params = self._resolve()
        except UnknownWorkload as error:
            return _unsupported("unknown_workload", error.detail)
        except InvalidSpec as error:
            return _unsupported("invalid_spec", error.detail)
        try:
            with JobFiles(self._claim, self._pulse, self._equipment) as self._files:
                self._files.prepare(params)
                return self._measure(workload, params)
        except EndsHere as early:
            return early.ending
        except Exception as error:  # noqa: BLE001 - a fault of ours: the job must not wait for its lease to run out
            LOG.exception("attempt-broke job=%s", self._claim.job_id)
            message = f"the worker failed: {type(error).__name__}: {error}"
            return Failed(Failure(failure_class=FailureClass.INFRASTRUCTURE, reason="worker_error", message=message))

    def _resolve(self) -> tuple[Workload, Params]:
        try:
            workload = self._equipment.workloads[self._spec.workload]
        except KeyError:
            raise UnknownWorkload(f'this worker has no workload "{self._spec.workload}"') from None
        if errors := check_units(self._spec.replicas, self._equipment.device):
            raise InvalidSpec(errors)
        return workload, validate_params(workload, self._spec.params, self._spec.replicas)

    def _measure(self, workload: Workload, params: Params) -> Ending:
        limits = self._limits(workload, params)
        records: list[RunRecord] = []
        while not records or not enough(self._spec.measure, records):
            ended = self._run_once(len(records), limits)
            if ending := self._early(ended, limits, len(records)):
                return ending
            assert ended.record is not None
            records.append(ended.record)
            self._tuned = records[0].tuned
        artifacts = self._files.deliver(len(records) - 1)
        device = self._equipment.launcher.describe(self._equipment.device)
        result = assemble(self._claim.job_id, self._spec, workload, params, device, records)
        return Succeeded(result.model_copy(update={"artifacts": artifacts}), _raw(records))

    def _early(self, ended: Ended, limits: Limits, run: int) -> Ending | None:
        """How the job ends with this run, if it does."""
        if ended.stopped_for is StopReason.SUPERSEDED:
            return Dropped()
        if ended.stopped_for is StopReason.CANCEL:
            return Stopped()
        if ended.record is not None:
            return None
        if ended.stopped_for is StopReason.SHUTDOWN:
            return HandedBack("worker_shutdown")
        failure = failure_of(ended, limits.deadline_s - self._began_s, limits.stall_s)
        assert failure is not None
        if failure.reason == "device_busy":  # someone else's runner still lives there: no fault of this job
            return HandedBack("device_busy")
        if failure.reason in _KILLED and self._equipment.stop.comes_within(_SIGNAL_SPREAD_S):
            return HandedBack("worker_shutdown")  # whoever ends this worker ended its runner or zygote too
        event("run-failed", job=self._claim.job_id, run=run + 1, reason=failure.reason, message=failure.message)
        return Failed(failure)

    def _run_once(self, run: int, limits: Limits) -> Ended:
        """One runner, from start to end; if its zygote dies first, one from a new zygote; if none forks, spawned."""
        ended = self._watch(run, limits)
        if ended.exit.lost and _unforked(ended):
            ended = self._watch(run, limits)
        refused = _unforked(ended)
        if refused is None or ended.exit.passing:  # a host that is full has no room for a spawned one either
            return ended
        if not self._equipment.launcher.fall_back(self._spec.framework, refused):
            return ended
        event("fell-back-to-spawn", logging.WARNING, framework=self._spec.framework, why=refused)
        return self._watch(run, limits)

    def _watch(self, run: int, limits: Limits) -> Ended:
        equipment = self._equipment
        with equipment.launcher.start(self._request(run)) as runner:
            return Watch(runner, run, limits, self._pulse, equipment.stop, equipment.clock).until_ended()

    def _request(self, run: int) -> RunRequest:
        settings = self._equipment.settings
        return RunRequest(
            job=self._claim.job_id,
            spec=self._spec,
            run=run,
            runs=self._spec.measure.processes.max,
            device=self._equipment.device,
            lock_paths=lock_paths(self._equipment.device, settings),
            shared_lock_paths=shared_lock_paths(self._equipment.device, settings),
            data_dir=str(settings.data_dir) if settings.data_dir else None,
            artifact_dir=str(self._files.empty()) if run == 0 else None,
            scratch_dir=str(self._files.scratch),
            weights_path=str(self._files.weights) if self._files.weights else None,
            tuned=self._tuned,
        )

    def _limits(self, workload: Workload, params: Params) -> Limits:
        """A timeout as asked for, else three times the estimate: every run that may come, sampled as long as it may.

        No frame comes while one execution lasts, so a run may be silent for three times its estimate.
        """
        settings, measure = self._equipment.settings, self._spec.measure
        one = workload.estimate(params, self._equipment.device)
        job_s = measure.processes.max * (one.time_s + measure.max_s) + one.train_s
        timeout_s = self._spec.timeout_s or max(_LEAST_TIMEOUT_S, _ESTIMATE_FACTOR * job_s)
        stall_s = max(settings.stall_s, _ESTIMATE_FACTOR * one.time_s)
        return Limits(stall_s, settings.term_grace_s, self._began_s + timeout_s)


def _unforked(ended: Ended) -> str | None:
    """Why the zygote didn't fork, where it wasn't told to stop."""
    return ended.exit.refused if ended.start == "forked" and ended.stopped_for is None else None


def _unsupported(reason: str, message: str) -> Failed:
    return Failed(Failure(failure_class=FailureClass.UNSUPPORTED, reason=reason, message=message))


def _measured(record: RunRecord) -> Sequence[RunRecord | CaseRecord]:
    return record.cases or [record]


def _raw(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Every sample of every run and case, seconds per execution, in the order they were taken."""
    return [
        {
            "run": number,
            **({"case": measured.name} if isinstance(measured, CaseRecord) else {}),
            "warmup": measured.warmup,
            "samples": measured.samples,
            "sample_cpu_s": measured.sample_cpu_s,
            "executions_per_sample": measured.summary.executions_per_sample,
        }
        for number, record in enumerate(records)
        for measured in _measured(record)
    ]
