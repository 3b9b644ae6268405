"""What is answered on a connection before there is a request that a route could answer."""

from __future__ import annotations

import contextvars
from http import HTTPStatus

from starlette.datastructures import MutableHeaders

from dyno.logging import current_request_id
from dyno.models.job import new_ulid
from service.edge import HEADERS
from service.problems import problem


def refusal(code: str, detail: str) -> bytes:
    """The problem as it goes over the wire, with what every answer carries; it is the connection's last."""
    return contextvars.copy_context().run(_written, code, detail)


def _written(code: str, detail: str) -> bytes:
    request_id = f"req_{new_ulid()}"
    current_request_id.set(request_id)  # from here the problem takes it
    answer = problem(code, detail, headers={"Connection": "close"})
    headers = MutableHeaders(raw=list(answer.raw_headers))
    headers.update({**HEADERS, "X-Request-ID": request_id})
    status = HTTPStatus(answer.status_code)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), *(b": ".join(pair) for pair in headers.raw)]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])
