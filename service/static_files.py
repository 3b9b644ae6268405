"""Files that pages load: each is read once and served with an ETag."""

import hashlib
from collections.abc import Iterable, Mapping
from importlib.resources.abc import Traversable
from typing import NamedTuple

from fastapi import Response
from starlette.exceptions import HTTPException

from service.dependencies import etag_matches

MEDIA_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "json": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    """A file of a page."""

    content: bytes
    media_type: str
    etag: str


def read_file(file: Traversable) -> StaticFile:
    """Raises KeyError unless MEDIA_TYPES has the file's suffix."""
    content = file.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return StaticFile(content, MEDIA_TYPES[file.name.rpartition(".")[2]], etag)


def read_files(files: Iterable[Traversable]) -> Mapping[str, StaticFile]:
    """The files by name."""
    return {file.name: read_file(file) for file in files}


def file_response(file: StaticFile | None, if_none_match: str | None) -> Response:
    """Raises HTTPException if there is no such file."""
    if file is None:
        raise HTTPException(404)
    headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
    if etag_matches(if_none_match, file.etag):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
