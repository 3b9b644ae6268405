"""The API document as a page: Swagger UI, served completely from this host."""

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse

from service import auth, dependencies

router = APIRouter(include_in_schema=False)

# The page may run scripts of this origin and send requests to it, and nothing else.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Asset(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str
    etag: str


_OURS, _SWAGGER_UI = files(__name__), files(__name__) / "swagger-ui"
_ASSETS = {
    "page.js": (_OURS, "text/javascript"),
    "page.css": (_OURS, "text/css"),
    "swagger-ui-bundle.js": (_SWAGGER_UI, "text/javascript"),
    "swagger-ui.css": (_SWAGGER_UI, "text/css"),
}


@cache
def assets() -> Mapping[str, Asset]:
    """All files by name: 1.7 MB, read once."""
    found = {}
    for name, (folder, media_type) in _ASSETS.items():
        content = (folder / name).read_bytes()
        found[name] = Asset(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


@router.get("/")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def root() -> Response:
    """Redirect to the documentation."""
    return RedirectResponse("docs")


@router.get("/docs")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def page() -> Response:
    """The page without the document: the page's script requests it, with a key if one is needed."""
    headers = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache"}
    return Response((_OURS / "page.html").read_bytes(), media_type="text/html", headers=headers)


@router.get("/docs/{asset}")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def asset(asset: str, if_none_match: dependencies.IfNoneMatch) -> Response:
    """A script or style sheet of the page."""
    found = assets().get(asset)
    if found is None:
        raise HTTPException(404)
    headers = {"ETag": found.etag, "Cache-Control": "no-cache"}
    if dependencies.etag_matches(if_none_match, found.etag):
        return Response(status_code=304, headers=headers)
    return Response(found.content, media_type=found.media_type, headers=headers)
