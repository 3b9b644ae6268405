"""Errors of the API as RFC 9457 problems: exceptions, statuses and titles, and the handlers.

Only what a request itself can get wrong has its exception here; all others are in `dyno.errors`. PROBLEMS is the one
table from an error's code to the status and title of its problem.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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

from dyno.errors import (
    DynoError,
    FieldError,
    InvalidSpec,
    LimitReached,
    NotComparable,
    ResultNotReady,
    StoreUnavailable,
)
from dyno.logging import current_request_id
from dyno.models.comparison import Difference
from dyno.models.job import Status
from dyno.validation_messages import validation_message


class MalformedBody(DynoError):
    """No JSON object could be read from the body."""

    code = "malformed-body"


class BodyTooLarge(DynoError):
    """More bytes than `settings.max_body_bytes`; the rest was not read."""

    code = "body-too-large"


class BodyTooSlow(DynoError):
    """The body didn't arrive in time."""

    code = "body-timeout"


class RepeatedHeader(DynoError):
    """A header that has one value is there twice, and says who asks: neither is believed."""

    code = "bad-request"


class UnsupportedMediaType(DynoError):
    """The body says it is something else than JSON in UTF-8."""

    code = "unsupported-media-type"


class NotAuthorized(DynoError):
    """The request needs a key or a token, and has none that is known."""

    code = "not-authorized"


class ScopeMissing(DynoError):
    """The key may do less than this."""

    code = "scope-missing"


class HostNotAllowed(DynoError):
    """Without a key: the request names a host that isn't this one's own."""

    code = "host-not-allowed"


class ProxyNotAllowed(DynoError):
    """Without a key: the request came through a proxy."""

    code = "proxy-not-allowed"


class OriginNotAllowed(DynoError):
    """Without a key: a page of another origin wants something changed."""

    code = "origin-not-allowed"


class NotReady(DynoError):
    """The store can't be reached, or would not keep jobs."""

    code = "not-ready"


class TooManyStreams(DynoError):
    """As many answers stay open as the settings allow."""

    code = "too-many-streams"


class InvalidRequest(InvalidSpec):
    """A parameter of the request is wrong, not its body."""

    code = "invalid-request"


@contextmanager
def hide_store_details() -> Iterator[None]:
    """Whoever asks may be one while the block runs: if the store is away, it isn't told where it is."""
    try:
        yield
    except StoreUnavailable as error:
        raise StoreUnavailable("Redis can't be used now") from error


def pointer(parent: str, key: str | int) -> str:
    """`parent` and one step further, as RFC 6901 writes it."""
    step = str(key).replace("~", "~0").replace("/", "~1")
    return f"{parent}/{_printable(step)}"


def _printable(text: str) -> str:
    """Lone surrogates can't be sent back as UTF-8, so they are shown escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# code -> (status, title). Codes are for programs and never change; a test holds the table complete.
PROBLEMS: dict[str, tuple[int, str]] = {
    "malformed-body": (400, "The body can't be read"),
    "bad-request": (400, "The request can't be read"),
    "not-authorized": (401, "The request needs a key or a token"),
    "scope-missing": (403, "The key may not do this"),
    "proxy-not-allowed": (403, "Proxies need a key"),
    "origin-not-allowed": (403, "Pages of this origin need a key"),
    "not-found": (404, "There is nothing here"),
    "job-not-found": (404, "No such job"),
    "artifact-not-found": (404, "The job has no such file"),
    "workload-not-found": (404, "No such workload"),
    "device-not-found": (404, "No such device"),
    "key-not-found": (404, "No such key"),
    "comparison-not-found": (404, "No such comparison"),
    "delivery-not-found": (404, "No such delivery"),
    "method-not-allowed": (405, "The method isn't allowed here"),
    "body-timeout": (408, "The body came too slowly"),
    "head-timeout": (408, "The head of the request came too slowly"),
    "job-expired": (409, "The job of this idempotency key is gone"),
    "job-finished": (409, "The job is done already"),
    "job-live": (409, "The job is not done yet"),
    "result-not-ready": (409, "The job has no result yet"),
    "no-result": (409, "The job ended without a result"),
    "not-comparable": (409, "The results can't be compared"),
    "stale-token": (409, "Another attempt owns the job"),
    "body-too-large": (413, "The body is too large"),
    "artifact-too-large": (413, "The file is too large"),
    "unsupported-media-type": (415, "The body must be JSON"),
    "host-not-allowed": (421, "Other names of this host need a key"),
    "invalid-request": (422, "A parameter of the request is wrong"),
    "invalid-spec": (422, "The spec can't be run as it is"),
    "invalid-comparison": (422, "This can't be compared"),
    "invalid-key": (422, "There can be no such key"),
    "does-not-fit": (422, "The job needs more memory than any device has"),
    "exceeds-timeout": (422, "The job would take longer than its timeout"),
    "unsupported": (422, "No fitting device has what the job needs"),
    "no-device-fits": (422, "No device fits"),
    "framework-missing": (422, "The framework is not installed"),
    "idempotency-key-reused": (422, "The idempotency key belongs to another request"),
    "queue-full": (429, "Too many jobs are queued"),
    "limit-reached": (429, "A limit of the key is reached"),
    "head-too-large": (431, "The head of the request is too large"),
    "dyno-error": (500, "Something went wrong"),
    "internal-error": (500, "Something went wrong"),
    "record-unreadable": (500, "What is stored can't be read"),
    "run-failed": (500, "The run failed"),
    "dataset-damaged": (500, "A data file is damaged"),
    "workload-fault": (500, "A workload is broken"),
    "not-ready": (503, "The service can't take jobs now"),
    "shutting-down": (503, "The service is ending"),
    "too-many-connections": (503, "Too many connections are open"),
    "too-many-streams": (503, "Too many streams are open"),
    "store-unavailable": (503, "The store is not available"),
    "artifact-store-unavailable": (503, "The artifact store is not available"),
    "artifact-store-unfit": (503, "The artifact store can't be used"),
    "store-unfit": (503, "The store is not set up to keep jobs"),
    "tracing-missing": (503, "Traces can't be made"),
    "device-unavailable": (503, "The device is not available"),
    "device-busy": (503, "Another process uses the device"),
    "server-unavailable": (503, "No store could be found"),
}


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
    # The rest of any other body is read and dropped: a connection that closed would be reset, and its response lost.
    headers = {"Connection": "close"} if error.code == "body-timeout" else {}
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
