"""OpenAPI 3.1 of the service: what FastAPI knows of it, and what only we do."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi

from dyno.workloads.contract import Workload
from service.access import CONTRACT, ROUTES, Open
from service.openapi.bodies import describe_bodies
from service.openapi.errors import AT_THE_EDGE, share_errors
from service.openapi.events import describe_events
from service.openapi.examples import show_examples
from service.openapi.headers import describe_headers
from service.openapi.operations import LINKS, OPERATIONS, TAGS, link, named
from service.openapi.receivers import describe_webhooks
from service.openapi.told import open_answers
from service.problems import documented

router = APIRouter()

Document = dict[str, Any]
Operation = dict[str, Any]

_SCHEMES = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "`dyno_` and 64 digits; the list beside it names the scope. Needed from the first key on: "
        "until then everything but /v1/keys is open.",
    },
    "attempt": {
        "type": "http",
        "scheme": "bearer",
        "description": "For workers: the token of the attempt that runs the job.",
    },
}
_ANYWHERE = ("internal-error", *AT_THE_EDGE)
_OF_KEYS = (
    *("not-authorized", "scope-missing", "limit-reached", "store-unavailable"),
    *("host-not-allowed", "proxy-not-allowed", "origin-not-allowed", *_ANYWHERE),
)


@router.get("/openapi.json", include_in_schema=False)
async def document(request: Request) -> Response:
    return Response(await anyio.to_thread.run_sync(_text, request.app), media_type="application/json")


def _text(app: FastAPI) -> bytes:
    """Made when first asked for, which takes half a second; then kept."""
    if not hasattr(app.state, "document"):
        app.state.document = json.dumps(app.openapi(), ensure_ascii=False).encode()
    kept: bytes = app.state.document
    return kept


def documenter(app: FastAPI, workloads: Mapping[str, Workload]) -> Callable[[], Document]:
    """What `app.openapi` is to be: made once, when first asked for."""

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
        operation["operationId"], operation["summary"] = OPERATIONS.get((method, path)) or named(method, path)
    _describe_links(document)
    show_examples(document)
    share_errors(document)
    describe_webhooks(document)
    open_answers(document)
    return document


def each_operation(document: Document) -> Iterator[tuple[str, str, Operation]]:
    """Method, path and operation, all of them."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _drop_foreign_errors(document: Document) -> None:
    """FastAPI adds its own 422 to every route with parameters; ours are problems, and said where they can happen."""
    for _, _, operation in each_operation(document):
        if "application/json" in operation["responses"].get("422", {}).get("content", {}):
            del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _drop_nulls(document: Document) -> None:
    """FastAPI says null of what may be left out; but in a query or a header `null` is a word like any other."""
    for _, _, operation in each_operation(document):
        for parameter in operation.get("parameters", []):
            schema = parameter["schema"]
            options = [option for option in schema.pop("anyOf", []) if option != {"type": "null"}]
            schema.update(options[0] if len(options) == 1 else {"anyOf": options} if options else {})


def _describe_access(document: Document) -> None:
    """What each route needs, and the answers to whoever doesn't have it."""
    document["components"]["securitySchemes"] = _SCHEMES
    for method, path, operation in each_operation(document):
        needs = ROUTES[(method, path)].needs
        if needs is Open.TO_ATTEMPTS:
            operation["security"] = [{"attempt": []}]
        elif not isinstance(needs, Open):
            operation["security"] = [{"key": [needs.value]}]
        _add_answers(operation, _ANYWHERE if isinstance(needs, Open) else _OF_KEYS)
        if path.startswith(CONTRACT):
            _add_answers(operation, ("invalid-request",))
        operation["responses"] = dict(sorted(operation["responses"].items()))
        for status, answer in operation["responses"].items():
            if answer["description"] == "Successful Response":  # FastAPI's, where a route says nothing
                answer["description"] = HTTPStatus(int(status)).phrase


def _add_answers(operation: Operation, codes: tuple[str, ...]) -> None:
    """Also where the route itself answers with that status, for a reason of its own."""
    for code in codes:
        for status, answer in documented(code).items():
            known = operation["responses"].setdefault(str(status), answer)
            if answer["description"] not in known["description"].split(", "):
                known["description"] = f"{known['description']}, {answer['description']}"


def _describe_links(document: Document) -> None:
    """From what an answer made or named to what can be done with it."""
    by_id = {operation["operationId"]: operation for _, _, operation in each_operation(document)}
    for (operation_id, status), links in LINKS.items():
        answer = by_id[operation_id]["responses"][status]
        answer["links"] = {each: link(each, parameters) for targets, parameters in links for each in targets}
