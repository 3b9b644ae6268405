"""Spans sent to an OpenTelemetry collector: one trace from the POST through the queue to each run."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from api_tests.conftest import TINY
from tests.cores import THERE, two_cores
from tests.numpy_runners import ON_NUMPY
from tests.waiting import eventually

otlp = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2", reason="no tensordyno[otel]")

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"  # of a client that traces, too
SENT = {"DYNO_TRACES": "1", "OTEL_BSP_SCHEDULE_DELAY": "100"} | ON_NUMPY


class Collector(ThreadingHTTPServer):
    """Keeps received spans with the name of the sending service."""

    def __init__(self):
        self.spans: list[tuple[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Taking)

    def of_trace(self):
        return [(service, span) for service, span in self.spans if span.trace_id.hex() == TRACE]


class _Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for of_resource in otlp.ExportTraceServiceRequest.FromString(body).resource_spans:
            [service] = [
                each.value.string_value for each in of_resource.resource.attributes if each.key == "service.name"
            ]
            self.server.spans += [(service, span) for scope in of_resource.scope_spans for span in scope.spans]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format, *args):
        pass


@contextmanager
def collecting():
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    try:
        yield collector, SENT | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}"}
    finally:
        collector.shutdown()
        thread.join()
        collector.server_close()


@pytest.mark.verify
@two_cores
def test_a_trace_spans_client_queue_and_each_run(house):
    body = TINY | {"device": THERE, "measure": {"processes": 2, "min_samples": 3, "min_s": 0}}
    with collecting() as (collector, env), house.another_worker(**env), house.another_api(**env) as (_, api):
        answer = api.http.post("/v1/jobs", json=body, headers={"traceparent": f"00-{TRACE}-{CALLER}-01"})
        job = api.finished(answer.raise_for_status().json())
        assert job["status"] == "succeeded"
        spans = eventually(lambda: len(found := collector.of_trace()) == 5 and found, 20, "all of the trace")
    by_name = {(service, span.name): span for service, span in spans}
    asked, attempt = by_name["dyno-api", "POST /v1/jobs"], by_name["dyno-worker", "attempt"]
    assert asked.parent_span_id.hex() == CALLER
    assert facts(asked) == {
        "http.request.method": "POST",
        "url.scheme": "http",
        "http.route": "/v1/jobs",
        "http.response.status_code": 202,
    }
    queued = by_name["dyno-worker", "queued"]
    assert queued.parent_span_id == attempt.parent_span_id == asked.span_id
    assert asked.start_time_unix_nano < queued.end_time_unix_nano <= attempt.end_time_unix_nano
    assert facts(attempt).items() >= {"dyno.job": job["id"], "dyno.ending": "succeeded", "dyno.attempt": 1}.items()
    runs = [span for _, span in spans if span.name == "run"]
    assert {span.parent_span_id for span in runs} == {attempt.span_id}
    assert sorted(facts(span)["dyno.run"] for span in runs) == [1, 2]
    assert all(facts(span)["dyno.phase.first_execution_s"] > 0 for span in runs)


def facts(of):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


@pytest.mark.verify
@two_cores
def test_an_unreachable_collector_fails_no_job(house):
    env = SENT | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    with house.another_worker(**env), house.another_api(**env) as (_, api):
        jobs = [api.submit(device=THERE) for _ in range(2)]
        assert [api.finished(job)["status"] for job in jobs] == ["succeeded"] * 2
