"""Authentication and authorization: the scope that each route needs, API keys, and attempt tokens.

`authorize` runs before every route. Workers read and store files without a key: their attempt's token names the job.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import Depends, Request
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute

from dyno.errors import DynoError, StoreUnavailable, UnknownJob
from dyno.models.api_key import EVERYBODY, ApiKey, Scope, Viewer
from dyno.models.spec import InterleavedSpec, Spec
from dyno.store.artifacts import check_token
from dyno.store.redis import JOB_ID
from service import anonymous_access, middleware, problems
from service.state import State

JOB_HEADER = "dyno-job"  # the job that the token belongs to, when the request reads another job's file


def bearer_token(request: Request) -> str | None:
    """The request's bearer token, or None. Raises RepeatedHeader (RFC 6750, section 3.1)."""
    scheme, _, token = (_single_header(request, "authorization") or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


SESSION_COOKIE = "dyno_session"  # the id of a browser's session; the dashboard's log-in form creates it


async def _key_of(request: Request, state: State) -> ApiKey | None:
    """The key in the bearer token, or else the key of the browser's session. Raises RepeatedHeader and LimitReached."""
    secret, session = bearer_token(request), request.cookies.get(SESSION_COOKIE)
    if secret is not None:
        return await state.keys.admit(secret)
    return None if session is None else await state.keys.admit_session(session)


async def check_weights_access(request: Request, state: State) -> None:
    """Check that the attempt's job starts from the requested file.

    Raises NotAuthorized, RepeatedHeader, StaleToken, UnknownJob.
    """
    attempt_job, token = _single_header(request, JOB_HEADER) or "", bearer_token(request)
    if token is None or JOB_ID.fullmatch(attempt_job) is None:
        raise problems.NotAuthorized(f"{JOB_HEADER} must name the job of the attempt whose token is sent")
    with problems.hide_store_details():
        await check_token(state.client, state.settings, attempt_job, token)
    requested = {"job": request.path_params["job_id"], "name": request.path_params["name"]}
    if requested not in _weights_of((await state.jobs.get(attempt_job)).spec):
        raise UnknownJob(f"{attempt_job} doesn't start from this file")


def _single_header(request: Request, name: str) -> str | None:
    given = request.headers.getlist(name)
    if len(given) > 1:
        raise problems.RepeatedHeader(f"the header {name} is repeated; send it once")
    return given[0] if given else None


def _weights_of(spec: Spec) -> Iterator[object]:
    yield spec.params.get("weights")
    if isinstance(spec, InterleavedSpec):
        yield spec.against.params.get("weights")


class Keyless(Enum):
    """The reason why a route needs no key."""

    TO_ALL = "it only shows whether the service is up"
    TO_ATTEMPTS = "it needs the token of the attempt that runs the job"


class Visibility(Enum):
    """The owners of the data that a route returns. Tests check this: they request other keys' data from each route."""

    OWN = "jobs and their data: a key gets its own, an admin gets all"
    EVERYBODYS = "the same data for every caller, without jobs"


class RouteRule(NamedTuple):
    needs: Scope | Keyless
    whose: Visibility


READ, SUBMIT, ADMIN = Scope.READ, Scope.SUBMIT, Scope.ADMIN
OWN, EVERYBODYS = Visibility.OWN, Visibility.EVERYBODYS

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_RULES: dict[Callable[..., Any], RouteRule] = {}  # function of a route -> its rule


def requires(needs: Scope | Keyless, whose: Visibility) -> Callable[[_Endpoint], _Endpoint]:
    """Declare the rule of a route, as a decorator of its function. The service doesn't start if a route has no rule."""

    def declare(endpoint: _Endpoint) -> _Endpoint:
        _RULES[endpoint] = RouteRule(needs, whose)
        return endpoint

    return declare


def route_rules(routes: Iterable[BaseRoute]) -> dict[tuple[str, str], RouteRule]:
    """The rules by (method, path). Raises a RuntimeError that names every route without a rule."""
    rules, missing = dict[tuple[str, str], RouteRule](), list[str]()
    for context in iter_route_contexts(list(routes)):  # flattens included routers
        route = context.original_route
        if isinstance(route, APIRoute) and route.endpoint in _RULES:
            rules |= {(method, context.path or ""): _RULES[route.endpoint] for method in route.methods or ()}
        else:
            missing.append(str(context.path))
    if missing:
        raise RuntimeError(f"routes without @requires(...) from service.auth: {sorted(missing)}")
    return rules


CONTRACT = "/v1/"  # prefix of the routes that other programs rely on
WEIGHTS_ROUTE = ("GET", "/v1/jobs/{job_id}/artifacts/{name}")  # workers read the weights that their job starts from
# These routes need a key even while no other route does. Otherwise any client could create the first key and lock out
# all others. `dyno keys create` on the host creates the first key.
ALWAYS_NEED_KEY = ("/v1/keys", "/keys")  # prefixes
# While the store is unreachable, /metrics reports only the process' own figures, and `dyno_store_up` 0.
WITHOUT_STORE = ("GET", "/metrics")


class Caller(NamedTuple):
    """The sender of the request. Where no key is needed, a caller without a key may do everything.

    `session`: the id of the browser's session; None if the request sent the key itself.
    """

    key: ApiKey | None = None
    session: str | None = None

    @property
    def scope(self) -> Scope:
        return ADMIN if self.key is None else self.key.scope

    @property
    def name(self) -> str:
        return "anyone" if self.key is None else self.key.id

    @property
    def viewer(self) -> Viewer:
        return EVERYBODY if self.key is None else self.key.viewer


async def authorize(request: Request) -> Caller:
    """Identify the caller and check the route's rule. Runs before every route, before the body is read.

    Raises NotAuthorized (no key, or an unknown key), KeyExpired, RepeatedHeader, ScopeMissing, LimitReached,
    OriginNotAllowed, and all that `check_anonymous` raises.
    """
    row = (request.method, request.scope["route"].path)
    rule: RouteRule = request.app.state.rules[row]
    needs, state = rule.needs, request.app.state.opened
    if isinstance(needs, Keyless):
        return Caller()
    if row == WEIGHTS_ROUTE and JOB_HEADER in request.headers:
        await check_weights_access(request, state)
        return Caller()
    request.state.caller = caller = await _caller(request, state, row)
    if needs not in caller.scope.implied:
        raise problems.ScopeMissing(f'this needs a key of scope "{needs}"; {caller.name} has scope "{caller.scope}"')
    return caller


def likely_viewer(request: Request, state: State) -> Viewer | None:
    """The viewer that `authorize` will probably find. None unless the last request with this key was admitted.

    Data for this viewer may be read before `authorize` returns, but not sent.
    """
    secret = bearer_token(request)
    key = None if secret is None else state.keys.last_admitted(secret)
    return None if key is None else Caller(key).viewer


async def _caller(request: Request, state: State, row: tuple[str, str]) -> Caller:
    """The caller, with its key even if no key is needed. So jobs belong to the first key as soon as it is in use."""
    with problems.hide_store_details():
        key = await _key_of(request, state)
    if key is not None:
        session = None
        if bearer_token(request) is None:
            anonymous_access.check_origin(request, state.settings)
            session = request.cookies[SESSION_COOKIE]
        middleware.caller_key.set(key.id)
        return Caller(key, session)
    if row[1].startswith(ALWAYS_NEED_KEY) or await state.gate.closed(while_away=row == WITHOUT_STORE):
        raise problems.NotAuthorized(_KEY_NEEDED if bearer_token(request) is None else "this key is unknown or revoked")
    anonymous_access.check_anonymous(request, state.settings)
    return Caller()


async def is_known(request: Request, state: State) -> bool:
    """Whether the caller of a public route may see details that aren't public."""
    try:
        await _caller(request, state, WITHOUT_STORE)
    except DynoError:
        return False
    return True


async def may_continue(state: State, caller: Caller) -> bool:
    """Whether a stream may go on: the caller's key is valid and its session is open, or the caller needs no key.

    While the store is unreachable, the stream may go on, because it has no data to send.
    """
    with contextlib.suppress(StoreUnavailable):
        if caller.session is not None and not await state.keys.has_session(caller.session):
            return False
        return await (state.keys.is_valid(caller.key.id) if caller.key else _open(state))
    return True


async def _open(state: State) -> bool:
    return not await state.gate.closed()


_KEY_NEEDED = 'this needs an API key: send "Authorization: Bearer dyno_…"; `dyno keys create` on the host makes one'
CallerDep = Annotated[Caller, Depends(authorize)]
