"""Build the OpenAPI 3.1 document: FastAPI's, completed with operations, links and headers.

Tables here have the names, summaries and links of operations and the headers of responses; `components` adds schemas,
examples and errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from dyno.workloads.contract import Workload
from service.auth import CONTRACT, ROUTE_RULES, Keyless
from service.openapi.components import (
    CONNECTION_ERRORS,
    describe_bodies,
    describe_events,
    describe_webhooks,
    open_response_schemas,
    share_errors,
    show_examples,
)
from service.problems import documented

TAGS = {
    "jobs": "Submit benchmarks, wait for them, read their results",
    "artifacts": "Files of jobs",
    "results": "Metrics of many jobs, for dashboards",
    "comparisons": "Compare results, or two specs run in turns",
    "events": "Server-Sent Events of jobs",
    "workloads": "The benchmarks that jobs can run",
    "fleet": "Workers and devices",
    "webhooks": "Notifications about done jobs",
    "keys": "API keys",
    "health": "Probes and Prometheus metrics",
}

# (method, path) -> operationId, summary. A route without a row is named after its path.
OPERATIONS: dict[tuple[str, str], tuple[str, str]] = {
    ("POST", "/v1/jobs"): ("submitJob", "Submit a job"),
    ("GET", "/v1/jobs"): ("listJobs", "List jobs"),
    ("GET", "/v1/jobs/{job_id}"): ("getJob", "Read a job, or wait for it"),
    ("DELETE", "/v1/jobs/{job_id}"): ("deleteJob", "Delete a done job"),
    ("POST", "/v1/jobs/{job_id}/rerun"): ("rerunJob", "Run a job's spec again"),
    ("POST", "/v1/jobs/{job_id}/cancel"): ("cancelJob", "Cancel a job"),
    ("GET", "/v1/jobs/{job_id}/result"): ("getResult", "Read a job's result"),
    ("GET", "/v1/jobs/{job_id}/logs"): ("getLogs", "Read or follow a job's log"),
    ("GET", "/v1/jobs/{job_id}/events"): ("followJob", "Follow a job"),
    ("GET", "/v1/jobs/{job_id}/samples"): ("getSamples", "Read a job's samples"),
    ("HEAD", "/v1/jobs/{job_id}/artifacts"): ("checkArtifacts", "Check that a job's files can be listed"),
    ("GET", "/v1/jobs/{job_id}/artifacts"): ("listArtifacts", "List a job's files"),
    ("HEAD", "/v1/jobs/{job_id}/artifacts/{name}"): ("checkArtifact", "Read a file's headers"),
    ("GET", "/v1/jobs/{job_id}/artifacts/{name}"): ("getArtifact", "Download a file"),
    ("PUT", "/v1/jobs/{job_id}/artifacts/{name}"): ("putArtifact", "Store a file"),
    ("GET", "/v1/results"): ("listResults", "Read metrics of many jobs"),
    ("POST", "/v1/comparisons"): ("createComparison", "Compare results or two specs"),
    ("GET", "/v1/comparisons/{comparison_id}"): ("getComparison", "Read a comparison"),
    ("GET", "/v1/comparisons/{comparison_id}/bars.svg"): ("getBars", "Draw a comparison"),
    ("GET", "/v1/events"): ("followAll", "Follow all jobs"),
    ("GET", "/v1/webhook-deliveries"): ("listDeliveries", "List webhook deliveries"),
    ("POST", "/v1/webhook-deliveries/{delivery_id}/redeliver"): ("redeliver", "Redeliver a webhook"),
    ("GET", "/v1/webhook-secret"): ("getWebhookSecret", "Read the secret of your webhooks"),
    ("GET", "/v1/workloads"): ("listWorkloads", "List workloads"),
    ("GET", "/v1/workloads/{name}"): ("getWorkload", "Read a workload"),
    ("GET", "/v1/devices"): ("listDevices", "List devices"),
    ("GET", "/v1/workers"): ("listWorkers", "List workers"),
    ("POST", "/v1/devices/{device_id}/cordon"): ("cordonDevice", "Cordon a device"),
    ("POST", "/v1/devices/{device_id}/uncordon"): ("uncordonDevice", "Uncordon a device"),
    ("GET", "/v1/me"): ("getMe", "Read your key"),
    ("POST", "/v1/keys"): ("createKey", "Create a key"),
    ("GET", "/v1/keys"): ("listKeys", "List keys"),
    ("DELETE", "/v1/keys/{key_id}"): ("revokeKey", "Revoke a key"),
    ("GET", "/metrics"): ("getMetrics", "Read metrics"),
    ("GET", "/livez"): ("getLiveness", "Check liveness"),
    ("GET", "/readyz"): ("getReadiness", "Check readiness"),
}

_Links = list[tuple[tuple[str, ...], dict[str, str]]]
_OF_JOB = (
    *("getJob", "cancelJob", "rerunJob", "deleteJob", "getResult", "getSamples", "getLogs", "followJob"),
    "listArtifacts",
)
_OF_COMPARISON = (("getComparison", "getBars"), {"comparison_id": "$response.body#/id"})
_QUEUED_LINKS: _Links = [(_OF_JOB, {"job_id": "$response.body#/id"})]

# (operationId, status) -> operations that can follow, and the parts of the response that they need.
LINKS: dict[tuple[str, str], _Links] = {
    ("submitJob", "202"): _QUEUED_LINKS,
    ("rerunJob", "202"): _QUEUED_LINKS,
    ("cancelJob", "200"): [(("getJob", "rerunJob", "deleteJob"), {"job_id": "$response.body#/id"})],
    ("listJobs", "200"): [(("getJob",), {"job_id": "$response.body#/data/0/id"})],
    ("listArtifacts", "200"): [
        (("getArtifact",), {"job_id": "$request.path.job_id", "name": "$response.body#/data/0/name"})
    ],
    ("createComparison", "201"): [_OF_COMPARISON],
    ("createComparison", "202"): [_OF_COMPARISON, (("getJob", "cancelJob"), {"job_id": "$response.body#/job"})],
    ("listDeliveries", "200"): [
        (("redeliver",), {"delivery_id": "$response.body#/data/0/id"}),
        (("getJob",), {"job_id": "$response.body#/data/0/job"}),
    ],
    ("listWorkloads", "200"): [(("getWorkload",), {"name": "$response.body#/data/0/name"})],
    ("listDevices", "200"): [(("cordonDevice", "uncordonDevice"), {"device_id": "$response.body#/data/0/id"})],
    ("createKey", "201"): [(("revokeKey",), {"key_id": "$response.body#/id"})],
}


def link(operation_id: str, parameters: dict[str, str]) -> dict[str, Any]:
    """An OpenAPI link."""
    return {"operationId": operation_id, "parameters": parameters}


def default_name(method: str, path: str) -> tuple[str, str]:
    """operationId and summary of a route without a row in OPERATIONS."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", path) if word]
    return method.lower() + "".join(map(str.capitalize, words)), f"{method} {path}"


_HEADERS = {
    "RequestId": ("string", "The `X-Request-ID` of the request, or a generated one"),
    "RetryAfter": ("integer", "Seconds after which to retry"),
    "Challenge": ("string", "`Bearer`: a key or a token is needed"),
    "RateLimitPolicy": ("string", "The limit that was reached: its quota, and its window in seconds"),
    "RateLimit": ("string", "What is left of the quota, and the seconds until it is renewed"),
    "ETag": ("string", "The version, for `If-None-Match`"),
    "FileETag": ("string", "The SHA-256 of the file, for `If-None-Match`"),
    "Disposition": ("string", "`attachment`, with a file name"),
    "Location": ("string", "The path of what was created"),
    "Link": ("string", "The next page, if there is one"),
    "Replayed": ("string", "`true`: this is the job of an earlier request with the same idempotency key"),
    "Preferred": ("string", "The `wait` that was granted"),
}
_ALWAYS = {"X-Request-ID": "RequestId"}
_OF_STATUS = {
    "401": {"WWW-Authenticate": "Challenge"},
    "429": {"Retry-After": "RetryAfter", "RateLimit": "RateLimit", "RateLimit-Policy": "RateLimitPolicy"},
    "503": {"Retry-After": "RetryAfter"},
}
_READ, _FILE = ("GET", "HEAD"), "/v1/jobs/{job_id}/artifacts/{name}"
_QUEUED_HEADERS = {"Location": "Location", "Retry-After": "RetryAfter", "Idempotent-Replayed": "Replayed"}
_JOB_HEADERS = {"ETag": "ETag", "Retry-After": "RetryAfter"}
_OF_ANSWER = {
    ("POST", "/v1/jobs", "202"): _QUEUED_HEADERS | {"ETag": "ETag", "Preference-Applied": "Preferred"},
    ("POST", "/v1/jobs/{job_id}/rerun", "202"): _QUEUED_HEADERS | {"ETag": "ETag", "Preference-Applied": "Preferred"},
    ("POST", "/v1/comparisons", "202"): _QUEUED_HEADERS,
    ("POST", "/v1/comparisons", "201"): {"Location": "Location"},
    ("GET", "/v1/jobs", "200"): {"Link": "Link"},
    ("GET", "/v1/results", "200"): {"Link": "Link", "Content-Disposition": "Disposition"},
    ("GET", "/v1/webhook-deliveries", "200"): {"Link": "Link"},
    ("GET", "/v1/jobs/{job_id}/samples", "200"): {"Content-Disposition": "Disposition"},
    **{("GET", "/v1/jobs/{job_id}", status): _JOB_HEADERS for status in ("200", "304")},
    **{("POST", "/v1/jobs/{job_id}/cancel", status): {"ETag": "ETag"} for status in ("200", "202")},
    **{(method, _FILE, "200"): {"ETag": "FileETag", "Content-Disposition": "Disposition"} for method in _READ},
    **{(method, _FILE, "304"): {"ETag": "FileETag"} for method in _READ},
}


def describe_headers(document: dict[str, Any]) -> None:
    """Add the headers of each response, without the security headers for browsers that every response has."""
    document["components"]["headers"] = {
        name: {"description": text, "schema": {"type": kind}} for name, (kind, text) in _HEADERS.items()
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                of_answer = _OF_ANSWER.get((method.upper(), path, status), {})
                names = _ALWAYS | _OF_STATUS.get(status, {}) | of_answer
                answer["headers"] = {
                    name: {"$ref": f"#/components/headers/{component}"} for name, component in names.items()
                }


router = APIRouter()

Document = dict[str, Any]
Operation = dict[str, Any]

_SCHEMES = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "`dyno_` and 64 hexadecimal digits; the list beside it names the scope. Needed once the first "
        "key exists: until then everything but /v1/keys is open.",
    },
    "attempt": {
        "type": "http",
        "scheme": "bearer",
        "description": "For workers: the token of the attempt that runs the job.",
    },
}
_ANYWHERE = ("internal-error", *CONNECTION_ERRORS)
_WITH_KEY = (
    *("not-authorized", "scope-missing", "limit-reached", "store-unavailable"),
    *("host-not-allowed", "proxy-not-allowed", "origin-not-allowed", *_ANYWHERE),
)


@router.get("/openapi.json", include_in_schema=False)
async def document(request: Request) -> Response:
    return Response(await anyio.to_thread.run_sync(_text, request.app), media_type="application/json")


def _text(app: FastAPI) -> bytes:
    """The document as JSON: built on the first request, in half a second, then cached."""
    if not hasattr(app.state, "document"):
        app.state.document = json.dumps(app.openapi(), ensure_ascii=False).encode()
    kept: bytes = app.state.document
    return kept


def openapi_factory(app: FastAPI, workloads: Mapping[str, Workload]) -> Callable[[], Document]:
    """A function for `app.openapi` that builds the document on its first call."""

    def openapi() -> Document:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app, workloads)
        return app.openapi_schema

    return openapi


def _described(app: FastAPI, workloads: Mapping[str, Workload]) -> Document:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
        routes=app.routes,
    )
    _drop_foreign_errors(document)
    _drop_nulls(document)
    describe_bodies(document, workloads)
    describe_events(document)
    _describe_access(document)
    describe_headers(document)
    for method, path, operation in each_operation(document):
        operation["operationId"], operation["summary"] = OPERATIONS.get((method, path)) or default_name(method, path)
    _describe_links(document)
    show_examples(document)
    share_errors(document)
    describe_webhooks(document)
    open_response_schemas(document)
    return document


def each_operation(document: Document) -> Iterator[tuple[str, str, Operation]]:
    """Method, path and operation of each operation."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _drop_foreign_errors(document: Document) -> None:
    """Remove the 422 that FastAPI adds to every route with parameters; routes document their own problems."""
    for _, _, operation in each_operation(document):
        if "application/json" in operation["responses"].get("422", {}).get("content", {}):
            del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _drop_nulls(document: Document) -> None:
    """Remove the null that FastAPI adds to optional parameters: in a query or header `null` is plain text."""
    for _, _, operation in each_operation(document):
        for parameter in operation.get("parameters", []):
            schema = parameter["schema"]
            options = [option for option in schema.pop("anyOf", []) if option != {"type": "null"}]
            schema.update(options[0] if len(options) == 1 else {"anyOf": options} if options else {})


def _describe_access(document: Document) -> None:
    """Add what each route needs, and its responses to callers that lack it."""
    document["components"]["securitySchemes"] = _SCHEMES
    for method, path, operation in each_operation(document):
        needs = ROUTE_RULES[(method, path)].needs
        if needs is Keyless.TO_ATTEMPTS:
            operation["security"] = [{"attempt": []}]
        elif not isinstance(needs, Keyless):
            operation["security"] = [{"key": [needs.value]}]
        _add_answers(operation, _ANYWHERE if isinstance(needs, Keyless) else _WITH_KEY)
        if path.startswith(CONTRACT):
            _add_answers(operation, ("invalid-request",))
        operation["responses"] = dict(sorted(operation["responses"].items()))
        for status, answer in operation["responses"].items():
            if answer["description"] == "Successful Response":  # FastAPI's default
                answer["description"] = HTTPStatus(int(status)).phrase


def _add_answers(operation: Operation, codes: tuple[str, ...]) -> None:
    """Add the codes, also to a status that the route already documents."""
    for code in codes:
        for status, answer in documented(code).items():
            known = operation["responses"].setdefault(str(status), answer)
            if answer["description"] not in known["description"].split(", "):
                known["description"] = f"{known['description']}, {answer['description']}"


def _describe_links(document: Document) -> None:
    """Add links from responses to the operations that can follow."""
    by_id = {operation["operationId"]: operation for _, _, operation in each_operation(document)}
    for (operation_id, status), links in LINKS.items():
        answer = by_id[operation_id]["responses"][status]
        answer["links"] = {each: link(each, parameters) for targets, parameters in links for each in targets}
