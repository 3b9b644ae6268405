"""Build the OpenAPI 3.1 document: complete FastAPI's document with access rules and headers.

Routes declare their names, summaries, problems and headers in their decorators. `components` adds schemas, examples
and errors.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from dyno.bench.contract import Workload
from service import auth, problems
from service.dependencies import RESPONSE_HEADERS, sends
from service.openapi import components

TAGS = {
    "jobs": "Submit benchmarks, wait for them, read their results",
    "schedules": "Jobs that Dyno submits at given times",
    "artifacts": "Files of jobs",
    "results": "Metrics of many jobs, for dashboards",
    "comparisons": "Compare results, or two specs run in turns",
    "baselines": "Named figures and limits that jobs are held against",
    "sweeps": "Many jobs by one request, and their results as a table and a plot",
    "history": "Results over time, their changes, and alarms",
    "events": "Server-Sent Events of jobs",
    "workloads": "The benchmarks that jobs can run",
    "fleet": "Workers and devices",
    "webhooks": "Notifications about done jobs",
    "keys": "API keys",
    "health": "Probes and Prometheus metrics",
}

_OF_STATUS = {"401": ["Challenge"], "429": ["RetryAfter", "RateLimit", "RateLimitPolicy"], "503": ["RetryAfter"]}


def describe_headers(document: dict[str, Any]) -> None:
    """Add the headers that follow from each status to the headers that routes declare.

    The security headers for browsers, which every response has, aren't listed.
    """
    document["components"]["headers"] = {
        name: {"description": text, "schema": {"type": kind}} for name, (_, kind, text) in RESPONSE_HEADERS.items()
    }
    for _, _, operation in each_operation(document):
        for status, answer in operation["responses"].items():
            answer["headers"] = sends("RequestId", *_OF_STATUS.get(status, ()))["headers"] | answer.pop("headers", {})


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
_ANYWHERE = ("internal-error", *components.CONNECTION_ERRORS)
_WITH_KEY = (
    *("not-authorized", "key-expired", "scope-missing", "limit-reached", "store-unavailable"),
    *("host-not-allowed", "proxy-not-allowed", "origin-not-allowed", *_ANYWHERE),
)


@router.get("/openapi.json", include_in_schema=False)
@auth.requires(auth.READ, auth.EVERYBODYS)
async def document(request: Request) -> Response:
    return Response(await anyio.to_thread.run_sync(_text, request.app), media_type="application/json")


def _text(app: FastAPI) -> bytes:
    """The document as JSON. The first request builds it, in half a second; later requests get it from a cache."""
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
    components.describe_bodies(document, workloads)
    components.describe_events(document)
    _describe_access(document, app.state.rules)
    describe_headers(document)
    components.show_examples(document)
    components.share_errors(document)
    components.describe_webhooks(document)
    components.open_response_schemas(document)
    return document


def each_operation(document: Document) -> Iterator[tuple[str, str, Operation]]:
    """Yield the method, the path and the object of each operation in `document`."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _drop_foreign_errors(document: Document) -> None:
    """Remove the response 422 that FastAPI adds to routes with parameters; routes document their own problems."""
    for _, _, operation in each_operation(document):
        if "application/json" in operation["responses"].get("422", {}).get("content", {}):
            del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _drop_nulls(document: Document) -> None:
    """Remove the null that FastAPI adds to optional parameters: in a query or a header, `null` is plain text."""
    for _, _, operation in each_operation(document):
        for parameter in operation.get("parameters", []):
            schema = parameter["schema"]
            options = [option for option in schema.pop("anyOf", []) if option != {"type": "null"}]
            schema.update(options[0] if len(options) == 1 else {"anyOf": options} if options else {})


def _describe_access(document: Document, rules: Mapping[tuple[str, str], auth.RouteRule]) -> None:
    """Add the access that each route needs, and its responses to callers without this access."""
    document["components"]["securitySchemes"] = _SCHEMES
    for method, path, operation in each_operation(document):
        needs = rules[method, path].needs
        if needs is auth.Keyless.TO_ATTEMPTS:
            operation["security"] = [{"attempt": []}]
        elif not isinstance(needs, auth.Keyless):
            operation["security"] = [{"key": [needs.value]}]
        _add_answers(operation, _ANYWHERE if isinstance(needs, auth.Keyless) else _WITH_KEY)
        if path.startswith(auth.CONTRACT):
            _add_answers(operation, ("invalid-request",))
        operation["responses"] = dict(sorted(operation["responses"].items()))
        for status, answer in operation["responses"].items():
            if answer["description"] == "Successful Response":  # FastAPI's default
                answer["description"] = HTTPStatus(int(status)).phrase


def _add_answers(operation: Operation, codes: tuple[str, ...]) -> None:
    """Add the codes, even to a status that the route already documents."""
    for code in codes:
        for status, answer in problems.documented(code).items():
            documented = operation["responses"].setdefault(str(status), answer)
            if answer["description"] not in documented["description"].split(", "):
                documented["description"] = f"{documented['description']}, {answer['description']}"
