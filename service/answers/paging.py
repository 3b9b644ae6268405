"""Pages of a list: the times that bound it, the link to the next one, and what is said of a wrong cursor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Request, Response
from pydantic import AwareDatetime, BeforeValidator, WithJsonSchema
from pydantic_core import PydanticKnownError

from dyno.errors import FieldError, InvalidSpec
from service.errors import InvalidRequest

_DATED = re.compile(r"[0-9]{4}-")
_EPOCH = re.compile(r"[1-9][0-9]{9}([0-9]{3})?")


def _no_number(text: object) -> object:
    """Pydantic takes a number for seconds, or milliseconds where it is large: nothing that the document says."""
    if isinstance(text, str) and _DATED.match(text) is None:
        raise PydanticKnownError("datetime_parsing", {"error": "no date"})
    return text


def _no_other_number(text: object) -> object:
    return text if isinstance(text, str) and _EPOCH.fullmatch(text) else _no_number(text)


Moment = Annotated[AwareDatetime, BeforeValidator(_no_number)]
# As dashboards write the ends of their range, too: Unix time in seconds or milliseconds.
MomentOrEpoch = Annotated[
    AwareDatetime,
    BeforeValidator(_no_other_number),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "pattern": f"^{_EPOCH.pattern}$"}]}
    ),
]


@contextmanager
def as_parameters() -> Iterator[None]:
    """What is wrong is a parameter of the request: the cursor, since all else was checked before."""
    try:
        yield
    except InvalidSpec as invalid:
        raise InvalidRequest([FieldError(f"/query{e.pointer}", e.code, e.detail) for e in invalid.errors]) from invalid


def link_next(request: Request, response: Response, cursor: str | None) -> None:
    """The same request with the cursor, where there is a next page."""
    if cursor is not None:
        kept = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
        query = urlencode([*kept, ("cursor", cursor)])
        response.headers["Link"] = f'<{request.url.path}?{query}>; rel="next"'
