"""Only `DYNO_TRACES` makes the API record spans."""

import pytest

from dyno.settings import Settings
from service.app import create_app


def test_fastapi_records_nothing_for_a_provider_of_the_process(redis_url, serve, monkeypatch):
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="no tensordyno[otel]")
    recorded = []

    class Recorder(sdk.SpanProcessor):
        def on_start(self, span, parent_context=None):
            recorded.append(span.name)

    provider = sdk.TracerProvider()
    provider.add_span_processor(Recorder())
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    with serve(create_app(Settings(redis_url=redis_url))) as http:
        assert http.get("/livez").status_code == 200
        assert http.get("/v1/devices").status_code == 200
    assert recorded == []
    provider.get_tracer("test").start_span("the recorder works").end()
    assert recorded == ["the recorder works"]
