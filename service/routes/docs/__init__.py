"""The document as a page to read and to try: Swagger UI, every byte of it served from here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from service.dependencies import IfNoneMatch, etag_matches

router = APIRouter(include_in_schema=False)

# What the page may do: run scripts and ask for answers of this very origin, and nothing else.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Asset(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str
    etag: str


_OURS, _BUNDLED = files(__name__), files("fastapi_offline") / "static"  # Swagger UI, in a package of that version
_ASSETS = {
    "page.js": (_OURS, "text/javascript"),
    "page.css": (_OURS, "text/css"),
    "swagger-ui-bundle.js": (_BUNDLED, "text/javascript"),
    "swagger-ui.css": (_BUNDLED, "text/css"),
}


@cache
def assets() -> Mapping[str, Asset]:
    """All of them, by name; read once, 1.7 MB."""
    found = {}
    for name, (folder, media_type) in _ASSETS.items():
        content = (folder / name).read_bytes()
        found[name] = Asset(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


@router.get("/")
async def root() -> Response:
    """There is no page of its own yet."""
    return RedirectResponse("docs")


@router.get("/docs")
async def page() -> Response:
    """A frame without a word of the API: the script asks for the document, with a key where one is needed."""
    headers = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache"}
    return Response((_OURS / "page.html").read_bytes(), media_type="text/html", headers=headers)


@router.get("/docs/{asset}")
async def asset(asset: str, if_none_match: IfNoneMatch) -> Response:
    """A script or a style of the page."""
    found = assets().get(asset)
    if found is None:
        raise HTTPException(404)
    headers = {"ETag": found.etag, "Cache-Control": "no-cache"}
    if etag_matches(if_none_match, found.etag):
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)
