"""Pages of a list: the times that bound it, the link to the next one, and what is said of a wrong cursor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Request, Response
from pydantic import AwareDatetime, BeforeValidator
from pydantic_core import PydanticKnownError

from dyno.errors import FieldError, InvalidSpec
from service.errors import InvalidRequest

_DATED = re.compile(r"[0-9]{4}-")


def _no_number(text: object) -> object:
    """Pydantic takes a number for seconds, or milliseconds where it is large: nothing that the document says."""
    if isinstance(text, str) and _DATED.match(text) is None:
        raise PydanticKnownError("datetime_parsing", {"error": "no date"})
    return text


Moment = Annotated[AwareDatetime, BeforeValidator(_no_number)]


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
