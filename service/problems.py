"""Errors as RFC 9457 problems: their form, and the handlers that make them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import reduce
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Route

from dyno.errors import DynoError, FieldError, InvalidSpec, LimitReached, NotComparable, ResultNotReady
from dyno.logging import current_request_id
from dyno.models.comparison import Difference
from dyno.models.job import Status
from dyno.validation_messages import validation_message
from service.codes import PROBLEMS
from service.errors import pointer

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 100  # of one answer: a body of 64 KiB can hold tens of thousands of wrong fields
RETRY_AFTER_S = 2

_INTERNAL = "the service failed on this request; its log says why"
_TELLING = frozenset({"record-unreadable"})  # of status 500, with a detail that is for the caller
_HTTP_CODES = {400: "bad-request", 404: "not-found", 405: "method-not-allowed"}


class ProblemError(BaseModel):
    """One wrong field."""

    pointer: str = Field(
        description="JSON pointer (RFC 6901) into the body; `/query/<name>` and `/header/<name>` for parameters."
    )
    code: str
    detail: str


class Problem(BaseModel):
    """RFC 9457. `code` is stable; `title` and `detail` are for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str = Field(description="The answer's `X-Request-ID`, which the service's log has too.")
    errors: list[ProblemError] | None = Field(
        default=None, description="Every wrong field at once; always and only with status 422."
    )
    job_status: Status | None = Field(
        default=None, description="Of the job; only with `result-not-ready` and `no-result`."
    )
    differing: list[Difference] | None = Field(
        default=None, description="Every field in which the results differ; only with `not-comparable`."
    )


def problem(
    code: str,
    detail: str,
    *,
    errors: list[FieldError] | None = None,
    headers: dict[str, str] | None = None,
    job_status: str | None = None,
    differing: Mapping[str, Sequence[object]] | None = None,
) -> Response:
    """The answer for `code`; 429 and 503 always say when to come back."""
    status, title = PROBLEMS[code]
    content: dict[str, Any] = {
        "type": f"urn:dyno:problem:{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
    }
    if (asked := current_request_id.get()) is not None:
        content["request_id"] = asked
    if errors is not None:
        content["errors"] = [{"pointer": e.pointer, "code": e.code, "detail": e.detail} for e in errors[:MAX_ERRORS]]
    if job_status is not None:
        content["job_status"] = job_status
    if differing is not None:
        content["differing"] = [{"field": field, "values": values} for field, values in differing.items()]
    answer = JSONResponse(content, status, headers, MEDIA_TYPE)
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        answer.headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    return answer


def documented(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route, for OpenAPI: one entry per status, naming the codes that it can carry."""
    found: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        status, _ = PROBLEMS[code]
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        entry = found.setdefault(status, {"description": "", "content": content})
        entry["description"] = ", ".join(filter(None, (entry["description"], f"`{code}`")))
    return found


def install(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Make every error of `app` a problem, also those of the framework and those nobody thought of."""
    app.state.routes = routes
    app.add_exception_handler(DynoError, _of_dyno)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(RequestValidationError, _of_parameters)
    app.add_exception_handler(ClientDisconnect, _unheard)
    app.add_exception_handler(Exception, _unexpected)


async def _of_dyno(request: Request, error: Exception) -> Response:
    assert isinstance(error, DynoError)
    status, _ = PROBLEMS.get(error.code, PROBLEMS["dyno-error"])
    if status == HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in _TELLING:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem("internal-error", _INTERNAL)
    errors = _field_errors(error, status)
    # The rest of the body was not read, so the connection can't carry another request; of an upload, perhaps.
    unread = error.code in ("body-too-large", "body-timeout") or request.method == "PUT"
    headers = {"Connection": "close"} if unread else {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, LimitReached):
        headers |= _rate_limit(error)
    detail = _summary(error.errors) if isinstance(error, InvalidSpec) else error.detail
    more: dict[str, Any] = {}
    if isinstance(error, ResultNotReady):
        more["job_status"] = error.job_status
    if isinstance(error, NotComparable):
        more["differing"] = error.fields
    return problem(error.code, detail, errors=errors, headers=headers, **more)


def _rate_limit(error: LimitReached) -> dict[str, str]:
    """The fields of draft-ietf-httpapi-ratelimit-headers-10: q of the quota are allowed in w seconds, r are left."""
    window = f";w={error.window_s}" if error.window_s else ""
    return {
        "RateLimit-Policy": f'"{error.policy}";q={error.quota}{window}',
        "RateLimit": f'"{error.policy}";r=0;t={error.retry_after_s}',
        "Retry-After": str(error.retry_after_s),
    }


def _field_errors(error: DynoError, status: int) -> list[FieldError] | None:
    """Every 422 names what to change; where the error itself does not, its code tells where that is."""
    if isinstance(error, InvalidSpec):
        return error.errors
    if status != HTTPStatus.UNPROCESSABLE_ENTITY:
        return None
    return [FieldError(_AT.get(error.code, ""), error.code, error.detail)]


_AT = {
    "no-device-fits": "/device",
    "framework-missing": "/framework",
    "idempotency-key-reused": "/header/idempotency-key",
}


async def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _HTTP_CODES.get(error.status_code, "bad-request")
    headers = dict(error.headers or {})
    if code == "method-not-allowed":
        headers["Allow"] = ", ".join(_methods(request))
    return problem(code, f"{request.method} {request.url.path}: {error.detail}", headers=headers)


def _methods(request: Request) -> list[str]:
    """All that the path takes: Starlette itself names those of the first route only, and HEAD is taken where GET is."""
    routes: Sequence[BaseRoute] = request.app.state.routes
    fitting = [r for r in routes if isinstance(r, Route) and r.matches(request.scope)[0] is not Match.NONE]
    found = {method for route in fitting for method in route.methods or ()}
    return sorted(found | {"HEAD"} if "GET" in found else found)


async def _of_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = (
        FieldError(reduce(pointer, each["loc"], ""), each["type"].replace("_", "-"), validation_message(each))
        for each in error.errors()
    )
    errors = list(dict.fromkeys(found))  # what two parts of a route look at is found wrong by both
    return problem("invalid-request", _summary(errors), errors=errors)


async def _unheard(request: Request, error: Exception) -> Response:
    """Whoever asked was gone before the body had come: no fault of the service, and nobody hears this."""
    return problem("bad-request", "the body did not come to its end")


async def _unexpected(request: Request, error: Exception) -> Response:
    # Starlette raises it again after this answer: the server logs the traceback and closes the connection, which has to
    # be said, or the caller's next request on it is lost.
    return problem("internal-error", _INTERNAL, headers={"Connection": "close"})


def _summary(errors: list[FieldError]) -> str:
    shown = "; ".join(f"{e.pointer or 'the body'}: {e.detail}" for e in errors[:3])
    return shown + (f"; and {len(errors) - 3} more" if len(errors) > 3 else "")
