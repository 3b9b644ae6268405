"""The docs as a site. `make site` builds it into this package; without it, a text says so."""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Response
from starlette.responses import PlainTextResponse, RedirectResponse

from service import auth, dependencies
from service.docs import PAGE_POLICY
from service.static_files import MEDIA_TYPES, StaticFile, file_response, read_file

router = APIRouter(prefix="/docs/guide", include_in_schema=False)

FOLDER = Path(__file__).parents[1] / "guide"
ABSENT = "This installation has no guide. Run `make site` in its checkout, then restart the API.\n"
_INLINE = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


@cache
def site() -> Mapping[str, StaticFile]:
    """All files by their path in the site: 4 MB, read once."""
    found = [path for path in FOLDER.rglob("*.*") if path.suffix[1:] in MEDIA_TYPES]
    return {str(path.relative_to(FOLDER)): read_file(path) for path in found}


@cache
def policy(page: bytes) -> str:
    """`PAGE_POLICY`, and the scripts that the page itself contains, by their hashes."""
    digests = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _INLINE.findall(page))
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return PAGE_POLICY.replace("script-src 'self'", f"worker-src 'self'; script-src 'self' {hashes}".rstrip())


@router.get("")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def entrance() -> Response:
    """The links of the site are relative to its folder."""
    return RedirectResponse("guide/", 303)


@router.get("/{path:path}")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def file(path: str, if_none_match: dependencies.IfNoneMatch) -> Response:
    """A page, or a file that it loads."""
    if not site():
        return PlainTextResponse(ABSENT, 404)
    found = site().get(path or "index.html")
    response = file_response(found, if_none_match)
    if found and found.media_type == "text/html":
        response.headers["Content-Security-Policy"] = policy(found.content)
    return response
