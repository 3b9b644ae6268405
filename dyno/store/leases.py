"""A worker's operations on jobs: claim, heartbeat, finish, hand back. Each one needs the token of the attempt.

Finishing a job also records its headline metric, in one bounded series per kind of work and device model. Both are one
atomic step, so a series holds each result once. If a series is lost, new results aren't compared with old ones.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import redis
from pydantic_core import to_json

from dyno.models.baseline import Baseline
from dyno.models.device import Device
from dyno.models.job import (
    MAX_ATTEMPTS,
    MAX_HAND_BACKS,
    SCHEMA,
    WORKER_SHUTDOWN,
    Failure,
    FailureClass,
    FinishEvent,
    Holder,
    Progress,
    WorkerRef,
    new_token,
)
from dyno.models.result import Artifact, Headline, PartialMetrics, Peer, Result
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store import eta, placement, records
from dyno.store.artifacts import note_files
from dyno.store.fleet import queues_to_notify
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script, store_errors
from dyno.store.stored_results import (
    PEERS_KEPT,
    decompress,
    encode_outcome,
    encode_result,
    encode_samples,
    execute_raw,
    parse_peers,
)

PEERS_LIFE_S = (
    90 * 24 * 3600
)  # TTL of a series after its last figure: longer than jobs are kept by default, so that a monthly job has peers

log = logging.getLogger(__name__)


def headline_arguments(headline: Headline) -> list[str | int]:
    """Arguments of `finish.lua`: the figure, the length limit of the series, and its TTL in ms."""
    return [headline.own.model_dump_json(), PEERS_KEPT, PEERS_LIFE_S * 1000]


_MOST_ASKED = 128  # jobs in a call of claim.lua: storing the answers takes Redis about a millisecond


@dataclass(frozen=True)
class Claim:
    """One attempt at a job.

    `left_behind`: the number of jobs that remain in `queue`; if there are any, another worker should wake up.
    """

    job_id: str
    spec: Spec
    attempt: int
    token: str
    queue: str
    left_behind: int
    cancel_requested: bool
    device: str


@dataclass(frozen=True)
class HeartbeatReply:
    """`superseded`: another attempt may own the job now, so the worker must kill its runner at once."""

    superseded: bool
    cancel_requested: bool


class LogPiece(NamedTuple):
    """A piece of the output of an attempt's runners. Numbers start at 0."""

    number: int
    text: str


class JobOrigin(NamedTuple):
    """`traceparent`: the trace of the request that made the job, if any. The other fields are Unix times."""

    traceparent: str | None
    queued_at_s: float | None
    started_at_s: float | None  # None: the job has been requeued since


class Leases:
    """Every method raises StoreUnavailable while Redis is unreachable, and may then be retried: all are idempotent."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client, self._settings = client, settings
        self._keys = Keys(settings.namespace)
        self._lease_ms = round(settings.lease_s * 1000)
        self._unanswered: dict[str, str] = {}  # device -> token of a claim whose reply was lost
        self._scripts = {script: client.register_script(text) for script, text in SCRIPT_SOURCES.items()}

    def claim(
        self, device_id: str, queues: Sequence[str], worker: WorkerRef, taker: placement.ClaimFilter = placement.ANY_JOB
    ) -> Claim | None:
        """Lease the best job that waits in `queues` and that `taker` accepts. `device_id`: the device's full id.

        None if there is no such job, while the device is cordoned, or while it has a lease, even if that ran out. Jobs
        of a newer schema are passed over, like jobs that don't fit. A job of a known schema with an unreadable spec
        fails as `unsupported`, and the next job is tried.
        """
        while True:
            # Keep the token until a reply arrives, so that a retry returns the claim whose reply was lost.
            token = self._unanswered.setdefault(device_id, new_token())
            reply = self._look(device_id, queues, worker, taker, token)
            del self._unanswered[device_id]
            if reply[0] != "claimed":
                return None
            if claim := self._read(reply, token, device_id):
                return claim

    def pass_over(
        self, held_by: Holder, queues: Sequence[str], taker: placement.ClaimFilter = placement.ANY_JOB
    ) -> str | None:
        """Find the job that `claim` would return, and record that `held_by` uses the device. Returns the job's queue.

        Returns None if `claim` would return None.
        """
        reply = self._look(held_by.device, queues, None, taker, "", held_by)
        return str(reply[1]) if reply[0] == "held" else None

    def queues_to_notify(self, device: Device) -> list[str]:
        """Queues to wake after a claim that found nothing for `device`; see `dyno.store.fleet`."""
        return queues_to_notify(self._client, self._settings, device)

    def heartbeat(
        self,
        claim: Claim,
        progress: Progress | None,
        piece: LogPiece | None = None,
        so_far: PartialMetrics | None = None,
    ) -> HeartbeatReply:
        """Extend the lease, record the progress, and store the piece of log and the figures so far.

        Also extends an expired lease, unless maintenance has ended it.
        """
        number, text = piece or ("", "")
        figures = ["", ""] if so_far is None else [f"{so_far.run}{so_far.arm or ''}", _json(so_far)]
        reply = self._run(
            Script.HEARTBEAT,
            [self._keys.job(claim.job_id), self._keys.lease(claim.device)],
            [claim.job_id, claim.token, claim.device, self._lease_ms, _json(progress), number, text, *figures],
        )
        if reply[0] == "superseded":
            return HeartbeatReply(superseded=True, cancel_requested=False)
        return HeartbeatReply(superseded=False, cancel_requested=bool(reply[1]))

    def finish(
        self,
        claim: Claim,
        outcome: FinishEvent,
        *,
        status_reason: str | None = None,
        failure: Failure | None = None,
        result: Result | None = None,
        samples: Sequence[Any] | None = None,
        unsampled: Result | None = None,
        headline: Headline | None = None,
        pace: eta.ExpectedDuration | None = None,
    ) -> bool:
        """End the job. Returns False, and writes nothing, if the token was superseded. A repeated call returns True.

        `samples`: models or JSON values, stored under a separate key. `unsampled`: the result to store without samples
        if Redis is full; by default `result`. `headline`: the figure that later results are compared with. `pace`: the
        expected duration, for the series that forecasts use.
        """
        stored = "" if samples is None else encode_samples(samples)
        judged = encode_outcome(result.baseline) if result and result.baseline else ""
        for kept, readings in ((result, stored), (unsampled or result, "")):
            text = encode_result(kept) if kept else ""
            outcome_args = [outcome, status_reason or "", _json(failure), text, readings]
            reply = self._finish(claim.job_id, claim.token, claim.device, outcome_args, pace, headline, judged)
            if reply != "full":
                break
        return reply != "superseded"

    def requeue(self, claim: Claim, *, reason: str, counts_attempt: bool, failure: Failure | None = None) -> bool:
        """Hand the job back to the front of its queue. Returns False if the token was superseded.

        If the attempt counts and was the last, the job fails instead, with `failure` or a failure made from `reason`.
        If a cancel was requested, the job is canceled. After MAX_HAND_BACKS hand-backs by workers that shut down, each
        further hand-back counts as an attempt.
        """
        most = MAX_HAND_BACKS if reason == WORKER_SHUTDOWN and not counts_attempt else ""
        before = f"Workers that shut down handed the job back {MAX_HAND_BACKS} times, and then " if most else ""
        failure = failure or Failure(
            failure_class=FailureClass.INFRASTRUCTURE,
            reason=reason,
            message=f"{before}{MAX_ATTEMPTS} attempts ended without a result. Reason of the last one: {reason}.",
        )
        reply = self._run(
            Script.REQUEUE,
            [self._keys.job(claim.job_id)],
            [claim.job_id, claim.token, claim.device, reason, int(counts_attempt), MAX_ATTEMPTS, _json(failure), most],
        )
        return bool(reply[0] != "superseded")

    def knows(self, job_id: str) -> bool:
        """Whether this store has the job. An unknown job may belong to another store."""
        with store_errors():
            return bool(self._client.exists(self._keys.job(job_id)))

    def baseline(self, claim: Claim) -> Baseline | None:
        """The baseline that the job was submitted with; None if it has none. Raises RecordUnreadable."""
        with store_errors():
            text: Any = self._client.hget(self._keys.job(claim.job_id), "baseline")
        what = f"the baseline of {claim.job_id}"
        return None if text is None else records.parse_stored(Baseline.model_validate_json, text, what)

    def origin(self, claim: Claim) -> JobOrigin:
        """The trace of the job, and when the job was queued for this attempt and started."""
        with store_errors():
            values: Any = self._client.hmget(self._keys.job(claim.job_id), "traceparent", "queued_at", "started_at")
        traceparent, queued_at, started_at = values
        return JobOrigin(traceparent, *(None if at is None else float(at) for at in (queued_at, started_at)))

    def note_artifacts(self, claim: Claim) -> None:
        """Register the job for file cleanup. Call this before writing its first file to a shared store: files of
        unregistered jobs are never deleted."""
        note_files(self._client, self._settings, claim.job_id)

    def likely_duration_s(self, expected: eta.ExpectedDuration) -> float | None:
        """The likely duration of an attempt, estimated from earlier jobs; see `dyno.store.eta`."""
        return eta.read_likely_duration_s(self._client, self._keys, expected)

    def artifacts(self, job_id: str) -> list[Artifact] | None:
        """The files that a succeeded job's result lists; None if the store has no such result."""
        with store_errors():
            stored: Any = execute_raw(self._client, "GET", self._keys.result(job_id))
        return None if stored is None else Result.model_validate_json(decompress(stored)).artifacts

    def peers(self, series: str) -> list[Peer]:
        """Figures of a series, newest first. Raises StoreUnavailable or redis.ResponseError."""
        with store_errors():
            texts: Any = self._client.lrange(self._keys.peers(series), 0, PEERS_KEPT - 1)
        return parse_peers(texts)

    def _look(
        self,
        device_id: str,
        queues: Sequence[str],
        worker: WorkerRef | None,
        taker: placement.ClaimFilter,
        token: str,
        held_by: Holder | None = None,
    ) -> list[Any]:
        """Run claim.lua until its reply is final. In between, check whether jobs fit, and correct placement classes.

        The number of jobs that a call may ask about doubles with each call. Most claims ask about no job or one class.
        """
        keys = [self._keys.lease(device_id), *(self._keys.queue(name) for name in queues)]
        given = [device_id, token, _json(worker), self._lease_ms, taker.profile, SCHEMA, _json(held_by)]
        most, checked, answers = 1, "", list[str]()
        while True:
            outcome, *rest = reply = self._run(Script.CLAIM, keys, [*given, most, checked, *answers])
            if outcome not in ("asked", "unindexed", "further"):
                return reply
            checked, answers = "1", []
            if outcome == "unindexed":
                for queue in rest:
                    self._index_queue(queue)
            elif outcome == "asked":
                most = min(2 * most, _MOST_ASKED)
                for job_id, spec in zip(rest[::2], rest[1::2], strict=True):
                    answers += [job_id, taker.answer(spec)]

    def _index_queue(self, queue: str) -> None:
        """Correct the placement classes of a queue, so that they hold exactly the queue's jobs."""
        cursor = "-inf"
        while cursor:
            _, *following = self._run(Script.INDEX, [self._keys.queue(queue)], [queue, cursor])
            cursor = following[0] if following else ""

    def _read(self, reply: list[Any], token: str, device_id: str) -> Claim | None:
        _, job_id, text, attempt, queue, left_behind, cancel_requested = reply
        try:
            spec = records.read_spec(text)
        except (ValueError, TypeError) as error:  # raised by JSON or by the models
            message = f"This worker's version can't read the spec: {error}"
            failure = Failure(failure_class=FailureClass.UNSUPPORTED, reason="unreadable_spec", message=message)
            self._finish(job_id, token, device_id, ["fail", failure.reason, _json(failure), "", ""])
            return None
        return Claim(job_id, spec, int(attempt), token, queue, int(left_behind), bool(cancel_requested), device_id)

    def _finish(
        self,
        job_id: str,
        token: str,
        device_id: str,
        outcome_args: list[str | bytes],
        pace: eta.ExpectedDuration | None = None,
        headline: Headline | None = None,
        judged: str = "",
    ) -> str:
        keys = [self._keys.job(job_id), self._keys.result(job_id), self._keys.samples(job_id)]
        keys += [self._keys.peers(headline.series)] if headline else []
        figure = headline_arguments(headline) if headline else []
        expected = [pace.series, pace.reading] if pace else ["", ""]
        reply = self._run(Script.FINISH, keys, [job_id, token, device_id, *outcome_args, *expected, judged, *figure])
        return str(reply[0])

    def _run(self, script: Script, keys: list[str], args: list[Any]) -> list[Any]:
        call = partial(self._scripts[script], keys=keys, args=[self._keys.namespace, *args])
        with store_errors():
            try:
                reply: list[Any] = call()
            except redis.exceptions.NoScriptError:  # Redis restarted after redis-py had loaded the script
                reply = call()
        return reply


def _json(value: Any) -> str:
    return "" if value is None else to_json(value, inf_nan_mode="null").decode()
