"""The OpenAPI document as a page (Swagger UI), and the docs as a site. Neither loads files from other hosts.

`make site` builds the site into `service/guide`. Without the site, a text says how to build it.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Response
from starlette.responses import PlainTextResponse, RedirectResponse

from service import auth, dependencies
from service.static_files import MEDIA_TYPES, StaticFile, file_response, read_file, read_files

router = APIRouter(include_in_schema=False)

# The page may only run scripts of this origin and send requests to it.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_OURS, _SWAGGER_UI = files(__name__), files(__name__) / "swagger-ui"

GUIDE = Path(__file__).parents[1] / "guide"
GUIDE_ABSENT = "This installation has no guide. Run `make site` in its checkout, then restart the API.\n"
_INLINE = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


@cache
def assets() -> Mapping[str, StaticFile]:
    """All files by name. They have 1.7 MB in total, and are read once."""
    ours = (_OURS / name for name in ("page.js", "page.css"))
    return read_files((*ours, *(_SWAGGER_UI / name for name in ("swagger-ui-bundle.js", "swagger-ui.css"))))


@router.get("/docs")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def page() -> Response:
    """The page without the document: the page's script requests it, with a key if one is needed."""
    headers = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache"}
    return Response((_OURS / "page.html").read_bytes(), media_type="text/html", headers=headers)


@cache
def guide_files() -> Mapping[str, StaticFile]:
    """All files by their path in the site. They have 4 MB in total, and are read once."""
    paths = [path for path in GUIDE.rglob("*.*") if path.suffix[1:] in MEDIA_TYPES]
    return {str(path.relative_to(GUIDE)): read_file(path) for path in paths}


@cache
def _guide_policy(page: bytes) -> str:
    """`PAGE_POLICY` that also allows the inline scripts of `page`, by their hashes."""
    digests = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _INLINE.findall(page))
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return PAGE_POLICY.replace("script-src 'self'", f"worker-src 'self'; script-src 'self' {hashes}".rstrip())


@router.get("/docs/guide")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def guide_entrance() -> Response:
    """Redirect to the folder of the site: the site's links are relative to it."""
    return RedirectResponse("guide/", 303)


@router.get("/docs/guide/{path:path}")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def guide_file(path: str, if_none_match: dependencies.IfNoneMatch) -> Response:
    """A page, or a file that it loads."""
    if not guide_files():
        return PlainTextResponse(GUIDE_ABSENT, 404)
    content = guide_files().get(path or "index.html")
    response = file_response(content, if_none_match)
    if content and content.media_type == "text/html":
        response.headers["Content-Security-Policy"] = _guide_policy(content.content)
    return response


@router.get("/docs/{asset}")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def asset(asset: str, if_none_match: dependencies.IfNoneMatch) -> Response:
    """A script or style sheet of the page."""
    return file_response(assets().get(asset), if_none_match)
