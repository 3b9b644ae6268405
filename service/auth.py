"""Authentication and authorization: the scope that each route needs, API keys, and tokens of attempts.

`authorize` stands in front of every route. A worker reads and stores files without a key: the token of its attempt
says for which job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Annotated, NamedTuple

from fastapi import Depends, Request
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute

from dyno.errors import DynoError, StoreUnavailable, UnknownJob
from dyno.models.api_key import EVERYBODY, ApiKey, Scope, Viewer
from dyno.models.spec import InterleavedSpec, Spec
from dyno.store.artifacts import check_token
from dyno.store.redis import JOB_ID
from service import middleware
from service.anonymous_access import check_anonymous
from service.problems import NotAuthorized, RepeatedHeader, ScopeMissing, hide_store_details
from service.state import State

JOB_HEADER = "dyno-job"  # the job that the token holds, where the request is about another one's file


def bearer_token(request: Request) -> str | None:
    """What comes with the scheme `Bearer`; null for none. Raises RepeatedHeader (RFC 6750, section 3.1)."""
    scheme, _, token = (_single_header(request, "authorization") or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


async def check_weights_access(request: Request, state: State) -> None:
    """That the attempt runs a job that starts from the file asked for.

    Raises NotAuthorized, RepeatedHeader, StaleToken, UnknownJob.
    """
    own, token = _single_header(request, JOB_HEADER) or "", bearer_token(request)
    if token is None or JOB_ID.fullmatch(own) is None:
        raise NotAuthorized(f"{JOB_HEADER} names the job whose attempt's token is sent with it")
    with hide_store_details():
        await check_token(state.client, state.settings, own, token)
    asked = {"job": request.path_params["job_id"], "name": request.path_params["name"]}
    if asked not in _weights_of((await state.jobs.get(own)).spec):
        raise UnknownJob(f"{own} starts from no such file")


def _single_header(request: Request, name: str) -> str | None:
    given = request.headers.getlist(name)
    if len(given) > 1:
        raise RepeatedHeader(f"the header {name} is given more than once, and has one value")
    return given[0] if given else None


def _weights_of(spec: Spec) -> Iterator[object]:
    yield spec.params.get("weights")
    if isinstance(spec, InterleavedSpec):
        yield spec.against.params.get("weights")


class Keyless(Enum):
    """What needs no key."""

    TO_ALL = "nothing is told but whether the service is there"
    TO_ATTEMPTS = "the token of the attempt that runs the job"


class Visibility(Enum):
    """Of whom a route tells. Tests ask each for what is another key's, and hold it to this."""

    OWN = "jobs and what comes of them: each key its own, an admin all"
    EVERYBODYS = "the same for all who may ask, and nothing of anybody's jobs"


class RouteRule(NamedTuple):
    needs: Scope | Keyless
    whose: Visibility


READ, SUBMIT, ADMIN = Scope.READ, Scope.SUBMIT, Scope.ADMIN
OWN, EVERYBODYS = Visibility.OWN, Visibility.EVERYBODYS

# (method, path) -> its rule. A route without a row, or a row without a route, stops the start.
ROUTE_RULES: dict[tuple[str, str], RouteRule] = {
    ("POST", "/v1/jobs"): RouteRule(SUBMIT, OWN),
    ("GET", "/v1/jobs"): RouteRule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}"): RouteRule(READ, OWN),
    ("DELETE", "/v1/jobs/{job_id}"): RouteRule(SUBMIT, OWN),
    ("POST", "/v1/jobs/{job_id}/rerun"): RouteRule(SUBMIT, OWN),
    ("POST", "/v1/jobs/{job_id}/cancel"): RouteRule(SUBMIT, OWN),
    ("GET", "/v1/jobs/{job_id}/result"): RouteRule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}/logs"): RouteRule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}/events"): RouteRule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}/samples"): RouteRule(READ, OWN),
    ("HEAD", "/v1/jobs/{job_id}/artifacts"): RouteRule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}/artifacts"): RouteRule(READ, OWN),
    ("HEAD", "/v1/jobs/{job_id}/artifacts/{name}"): RouteRule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}/artifacts/{name}"): RouteRule(READ, OWN),
    ("PUT", "/v1/jobs/{job_id}/artifacts/{name}"): RouteRule(Keyless.TO_ATTEMPTS, OWN),
    ("GET", "/v1/results"): RouteRule(READ, OWN),
    ("POST", "/v1/comparisons"): RouteRule(SUBMIT, OWN),
    ("GET", "/v1/comparisons/{comparison_id}"): RouteRule(READ, OWN),
    ("GET", "/v1/comparisons/{comparison_id}/bars.svg"): RouteRule(READ, OWN),
    ("GET", "/v1/events"): RouteRule(READ, OWN),
    ("GET", "/v1/webhook-secret"): RouteRule(SUBMIT, OWN),
    ("GET", "/v1/webhook-deliveries"): RouteRule(READ, OWN),
    ("POST", "/v1/webhook-deliveries/{delivery_id}/redeliver"): RouteRule(SUBMIT, OWN),
    ("GET", "/v1/workloads"): RouteRule(READ, EVERYBODYS),
    ("GET", "/v1/workloads/{name}"): RouteRule(READ, EVERYBODYS),
    ("GET", "/v1/devices"): RouteRule(READ, EVERYBODYS),
    ("GET", "/v1/workers"): RouteRule(READ, OWN),
    ("POST", "/v1/devices/{device_id}/cordon"): RouteRule(ADMIN, EVERYBODYS),
    ("POST", "/v1/devices/{device_id}/uncordon"): RouteRule(ADMIN, EVERYBODYS),
    ("GET", "/v1/me"): RouteRule(READ, OWN),
    ("POST", "/v1/keys"): RouteRule(ADMIN, EVERYBODYS),
    ("GET", "/v1/keys"): RouteRule(ADMIN, EVERYBODYS),
    ("DELETE", "/v1/keys/{key_id}"): RouteRule(ADMIN, EVERYBODYS),
    ("GET", "/openapi.json"): RouteRule(READ, EVERYBODYS),
    ("GET", "/"): RouteRule(Keyless.TO_ALL, EVERYBODYS),
    ("GET", "/docs"): RouteRule(Keyless.TO_ALL, EVERYBODYS),
    ("GET", "/docs/{asset}"): RouteRule(Keyless.TO_ALL, EVERYBODYS),
    ("GET", "/metrics"): RouteRule(READ, EVERYBODYS),
    ("GET", "/livez"): RouteRule(Keyless.TO_ALL, EVERYBODYS),
    ("GET", "/readyz"): RouteRule(Keyless.TO_ALL, EVERYBODYS),
}
CONTRACT = "/v1/"  # before the paths of those that other programs rely on
WEIGHTS_ROUTE = ("GET", "/v1/jobs/{job_id}/artifacts/{name}")  # a worker may read there what its own job starts from
# Even while nothing else needs a key: the first is made on the host, or whoever comes first could lock the others out.
ALWAYS_NEED_KEY = frozenset(row for row in ROUTE_RULES if row[1].startswith("/v1/keys"))
# Figures of the process alone are told while the store is away, or nobody would be told that it is.
WITHOUT_STORE = ("GET", "/metrics")


class Caller(NamedTuple):
    """Who asks. `key` is null where none is needed: then everything is allowed."""

    key: ApiKey | None = None

    @property
    def scope(self) -> Scope:
        return ADMIN if self.key is None else self.key.scope

    @property
    def name(self) -> str:
        return "anyone" if self.key is None else self.key.id

    @property
    def viewer(self) -> Viewer:
        return EVERYBODY if self.key is None else Viewer(self.key.id, sees_all=self.key.scope is ADMIN)


def check_route_rules(routes: Iterable[BaseRoute]) -> None:
    """Raises RuntimeError with every route that has no row, and every row that has no route."""
    served = set[tuple[str, str]]()
    for each in iter_route_contexts(list(routes)):  # those of included routers one by one
        route = each.original_route
        methods = route.methods or () if isinstance(route, APIRoute) else ["*"]
        served |= {(method, each.path or "") for method in methods}
    if served != ROUTE_RULES.keys():
        raise RuntimeError(
            f"routes without a row in service/auth.py: {sorted(served - ROUTE_RULES.keys())}, "
            f"rows without a route: {sorted(ROUTE_RULES.keys() - served)}"
        )


async def authorize(request: Request) -> Caller:
    """Who asks, if they may. In front of every route, so that nothing of a request is read before.

    Raises NotAuthorized (no key, or none that is known), RepeatedHeader, ScopeMissing, LimitReached, and what the check
    of requests without a key does.
    """
    row = (request.method, request.scope["route"].path)
    needs, state = ROUTE_RULES[row].needs, request.app.state.opened
    if isinstance(needs, Keyless):
        return Caller()
    if row == WEIGHTS_ROUTE and JOB_HEADER in request.headers:
        await check_weights_access(request, state)
        return Caller()
    caller = await _caller(request, state, row)
    if needs not in caller.scope.implied:
        raise ScopeMissing(f'this needs a key of scope "{needs}", {caller.name} has "{caller.scope}"')
    return caller


async def _caller(request: Request, state: State, row: tuple[str, str]) -> Caller:
    """A key that is sent counts even where none is needed: whoever has just made the first one gets jobs of its own."""
    secret = bearer_token(request)
    with hide_store_details():
        key = None if secret is None else await state.keys.find(secret)
    if key is not None:
        middleware.caller_key.set(key.id)
        with contextlib.suppress(StoreUnavailable):  # full or read-only: what can still be read is shown
            await state.keys.use(key)
        return Caller(key)
    if row in ALWAYS_NEED_KEY or await state.gate.closed(while_away=row == WITHOUT_STORE):
        raise NotAuthorized(_KEY_NEEDED if secret is None else "there is no such key, or it was revoked")
    check_anonymous(request, state.settings)
    return Caller()


async def is_known(request: Request, state: State) -> bool:
    """Of a route that is open to all: whether who asks may be told more than all are."""
    try:
        await _caller(request, state, WITHOUT_STORE)
    except DynoError:
        return False
    return True


async def may_continue(state: State, caller: Caller) -> bool:
    """Whether an answer that stays open may: the key isn't revoked, or there is still none. While the store is away it
    may, as nothing comes from there."""
    with contextlib.suppress(StoreUnavailable):
        return await (state.keys.stands(caller.key.id) if caller.key else _open(state))
    return True


async def _open(state: State) -> bool:
    return not await state.gate.closed()


_KEY_NEEDED = 'this needs a key: send "Authorization: Bearer dyno_…". On the host, `dyno keys create` makes one'
CallerDep = Annotated[Caller, Depends(authorize)]
