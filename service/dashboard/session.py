"""Log in with an API key, and log out. A session's cookie passes the same checks as the key's bearer token.

The cookie has a random id; Redis keeps its hash for twelve hours. Revoking the key ends its sessions. Scripts can't
read the cookie, and closing the browser deletes it. Links on other sites send the cookie, too, but the service refuses
changes that another origin requests (`anonymous_access.check_origin`).
"""

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from dyno.errors import KeyExpired, LimitReached
from service import anonymous_access, auth, problems
from service.dashboard.forms import read_form
from service.dashboard.rendering import PageRoute, page, see_other
from service.state import State

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/login")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def form(request: Request, next: str = "/") -> Response:
    """The form for the key, or instructions before the first key exists."""
    state: State = request.app.state.opened
    return await _form_page(request, state, _own_path(next))


@router.post("/login")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def log_in(request: Request) -> Response:
    """Open a session, and redirect to the page that needed the key."""
    state: State = request.app.state.opened
    anonymous_access.check_origin(request, state.settings)
    given = await read_form(request, state.settings)
    secret, following = given.get("key", "").strip(), _own_path(given.get("next", "/"))
    is_known, refused = False, "This key is unknown or revoked."
    try:
        with problems.hide_store_details():
            is_known = await state.keys.admit(secret) is not None
    except LimitReached:  # a known key that sends too many requests
        is_known = True
    except KeyExpired as error:
        refused = f"{error.detail[0].upper()}{error.detail[1:]}."
    if not is_known:
        return await _form_page(request, state, following, refused)
    with problems.hide_store_details():
        session = await state.keys.open_session(secret)
    response = RedirectResponse(following, 303)
    is_https = request.url.scheme == "https"
    response.set_cookie(auth.SESSION_COOKIE, session, httponly=True, samesite="lax", secure=is_https)
    return response


async def _form_page(request: Request, state: State, following: str, refused: str | None = None) -> Response:
    with problems.hide_store_details():
        needs_key = await state.gate.closed(while_away=True)
    context = {"next": following, "refused": refused, "needs_key": needs_key}
    return page(request, auth.Caller(), "login.html", context, 401 if refused else 200)


@router.post("/logout")
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def log_out(request: Request) -> Response:
    """End the session."""
    state: State = request.app.state.opened
    anonymous_access.check_origin(request, state.settings)
    if session := request.cookies.get(auth.SESSION_COOKIE):
        with problems.hide_store_details():
            await state.keys.end_session(session)
    response = see_other("/login")
    response.delete_cookie(auth.SESSION_COOKIE, httponly=True, samesite="lax")
    return response


def _own_path(text: str) -> str:
    """The path if it belongs to this origin, else the start page, because a link could name another site."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) else "/"
