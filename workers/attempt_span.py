"""Spans of an attempt and its runs, in the trace of the request that made the job."""

from collections.abc import Iterator
from contextlib import contextmanager

from dyno.errors import StoreUnavailable
from dyno.store.leases import Claim, Leases
from dyno.tracing import Carrier, Span, SpanAttributes, Tracer
from workers import outcome


@contextmanager
def attempt_span(claim: Claim, leases: Leases, traces: Tracer) -> Iterator[Span]:
    """The span of an attempt, preceded by one for the job's time in the queue. Spans are sent after the attempt, so
    that sending can't disturb a run.
    """
    if not traces.on:
        yield Span()
        return
    follows = _waited(claim, leases, traces)
    facts: SpanAttributes = {
        "dyno.job": claim.job_id,
        "dyno.workload": claim.spec.workload,
        "dyno.device": claim.device,
        "dyno.attempt": claim.attempt,
    }
    with traces.span("attempt", facts, follows=follows, kind="consumer") as span:
        yield span
    traces.flush()


def note_attempt(span: Span, ending: outcome.Ending, counted: bool) -> None:
    """Add the ending to the span. `counted`: whether the store accepted it; another attempt may have owned the job."""
    failure = ending.failure if isinstance(ending, outcome.Failed) else None
    span.note(
        {
            "dyno.ending": type(ending).__name__.lower(),
            "dyno.counted": counted,
            "dyno.reason": failure.reason if failure else None,
        },
        failed=failure.message if failure else None,
    )


def _waited(claim: Claim, leases: Leases, traces: Tracer) -> Carrier:
    try:
        origin = leases.origin(claim)
    except StoreUnavailable:  # only the link to the request's trace is lost
        return {}
    follows = {"traceparent": origin.traceparent} if origin.traceparent else {}
    facts = {"dyno.job": claim.job_id, "dyno.queue": claim.queue}
    if origin.queued_at_s is not None and origin.started_at_s is not None:
        traces.past("queued", facts, follows=follows, began_s=origin.queued_at_s, ended_s=origin.started_at_s)
    return follows
