"""Only `DYNO_TRACES` makes the API record spans."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from dyno.settings import Settings
from service.app import create_app


def test_fastapi_records_nothing_for_a_provider_of_the_process(
    redis_url: str, serve: Callable[[FastAPI], AbstractContextManager[httpx.Client]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="no tensordyno[otel]")
    recorded: list[str] = []

    class Recorder(sdk.SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
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
