"""The API document as a page: Swagger UI, served completely from this host."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Response

from service import auth, dependencies
from service.static_files import StaticFile, file_response, read_files

router = APIRouter(include_in_schema=False)

# The page may run scripts of this origin and send requests to it, and nothing else.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_OURS, _SWAGGER_UI = files(__name__), files(__name__) / "swagger-ui"


@cache
def assets() -> Mapping[str, StaticFile]:
    """All files by name: 1.7 MB, read once."""
    ours = (_OURS / name for name in ("page.js", "page.css"))
    return read_files((*ours, *(_SWAGGER_UI / name for name in ("swagger-ui-bundle.js", "swagger-ui.css"))))


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
    return file_response(assets().get(asset), if_none_match)
