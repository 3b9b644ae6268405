"""Traces are off by default, and tracing errors never break anything else."""

import sys

import pytest

from dyno.errors import TracingMissing
from dyno.settings import Settings
from dyno.tracing import tracer_for

ON = Settings(traces=True)


@pytest.fixture(autouse=True)
def _unsent(monkeypatch):
    """Create and propagate spans without sending them, since there is no collector."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")


def test_tracing_is_off_by_default():
    traces = tracer_for(Settings(), "test", sends_by_itself=False)
    with traces.span("work", {}) as span:
        span.note({"done": True})
        assert traces.carried() is None
    assert not traces.on


def test_without_opentelemetry_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(TracingMissing, match=r"\.\[otel\]"):
        tracer_for(ON, "test", sends_by_itself=False)


@pytest.mark.parametrize("given", ["", "00-nonsense", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 10_000, "\x00"])
def test_an_invalid_traceparent_starts_a_new_trace(given):
    pytest.importorskip("opentelemetry", reason="no tensordyno[otel]")
    traces = tracer_for(ON, "test", sends_by_itself=False)
    with traces.span("outer", {}), traces.span("inner", {}, follows={"traceparent": given}):
        begun = traces.carried()
    assert len(begun) == 55
    assert given not in begun[3:] or not given


def test_a_span_shares_the_trace_of_its_parent_and_of_the_span_it_follows():
    pytest.importorskip("opentelemetry", reason="no tensordyno[otel]")
    traces = tracer_for(ON, "test", sends_by_itself=False)
    with traces.span("asked", {}):
        asked = traces.carried()
    with traces.span("attempt", {}, follows={"traceparent": asked}):
        attempt = traces.carried()
        with traces.span("run", {}):
            run = traces.carried()
    assert attempt is not None
    assert run is not None
    assert {each.split("-")[1] for each in (asked, attempt, run)} == {asked.split("-")[1]}
    assert len({each.split("-")[2] for each in (asked, attempt, run)}) == 3
