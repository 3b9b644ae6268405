"""Files that pages load: each is read once and served with an ETag."""

import hashlib
from collections.abc import Iterable, Mapping
from importlib.resources.abc import Traversable
from typing import NamedTuple

from fastapi import Response
from starlette.exceptions import HTTPException

from service.dependencies import etag_matches

_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class StaticFile(NamedTuple):
    """A file of a page."""

    content: bytes
    media_type: str
    etag: str


def read_files(files: Iterable[Traversable]) -> Mapping[str, StaticFile]:
    """The files by name."""
    found = {}
    for each in files:
        content, kind = each.read_bytes(), each.name.rpartition(".")[2]
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found[each.name] = StaticFile(content, _MEDIA_TYPES[kind], etag)
    return found


def file_response(file: StaticFile | None, if_none_match: str | None) -> Response:
    """Raises HTTPException if there is no such file."""
    if file is None:
        raise HTTPException(404)
    headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
    if etag_matches(if_none_match, file.etag):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
