"""Who may do what: the one table from a route to the scope it needs, and the guard in front of all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, NamedTuple

from fastapi import Depends, Request
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.routing import BaseRoute

from dyno.errors import DynoError, StoreUnavailable
from dyno.models.api_key import EVERYBODY, ApiKey, Scope, Viewer
from service import edge
from service.attempts import JOB_HEADER, bearer, check_start
from service.errors import NotAuthorized, ScopeMissing, as_to_a_stranger
from service.local import check_local
from service.state import State


class Open(Enum):
    """What needs no key."""

    TO_ALL = "nothing is told but whether the service is there"
    TO_ATTEMPTS = "the token of the attempt that runs the job"


class Whose(Enum):
    """Of whom a route tells. Tests ask each for what is another key's, and hold it to this."""

    OWN = "jobs and what comes of them: each key its own, an admin all"
    EVERYBODYS = "the same for all who may ask, and nothing of anybody's jobs"


class Rule(NamedTuple):
    needs: Scope | Open
    whose: Whose


READ, SUBMIT, ADMIN = Scope.READ, Scope.SUBMIT, Scope.ADMIN
OWN, EVERYBODYS = Whose.OWN, Whose.EVERYBODYS

# (method, path) -> its rule. A route without a row, or a row without a route, stops the start.
ROUTES: dict[tuple[str, str], Rule] = {
    ("POST", "/v1/jobs"): Rule(SUBMIT, OWN),
    ("GET", "/v1/jobs"): Rule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}"): Rule(READ, OWN),
    ("DELETE", "/v1/jobs/{job_id}"): Rule(SUBMIT, OWN),
    ("POST", "/v1/jobs/{job_id}/rerun"): Rule(SUBMIT, OWN),
    ("POST", "/v1/jobs/{job_id}/cancel"): Rule(SUBMIT, OWN),
    ("GET", "/v1/jobs/{job_id}/result"): Rule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}/logs"): Rule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}/events"): Rule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}/samples"): Rule(READ, OWN),
    ("HEAD", "/v1/jobs/{job_id}/artifacts"): Rule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}/artifacts"): Rule(READ, OWN),
    ("HEAD", "/v1/jobs/{job_id}/artifacts/{name}"): Rule(READ, OWN),
    ("GET", "/v1/jobs/{job_id}/artifacts/{name}"): Rule(READ, OWN),
    ("PUT", "/v1/jobs/{job_id}/artifacts/{name}"): Rule(Open.TO_ATTEMPTS, OWN),
    ("GET", "/v1/results"): Rule(READ, OWN),
    ("POST", "/v1/comparisons"): Rule(SUBMIT, OWN),
    ("GET", "/v1/comparisons/{comparison_id}"): Rule(READ, OWN),
    ("GET", "/v1/comparisons/{comparison_id}/bars.svg"): Rule(READ, OWN),
    ("GET", "/v1/events"): Rule(READ, OWN),
    ("GET", "/v1/webhook-secret"): Rule(SUBMIT, OWN),
    ("GET", "/v1/webhook-deliveries"): Rule(READ, OWN),
    ("POST", "/v1/webhook-deliveries/{delivery_id}/redeliver"): Rule(SUBMIT, OWN),
    ("GET", "/v1/workloads"): Rule(READ, EVERYBODYS),
    ("GET", "/v1/workloads/{name}"): Rule(READ, EVERYBODYS),
    ("GET", "/v1/devices"): Rule(READ, EVERYBODYS),
    ("GET", "/v1/workers"): Rule(READ, OWN),
    ("POST", "/v1/devices/{device_id}/cordon"): Rule(ADMIN, EVERYBODYS),
    ("POST", "/v1/devices/{device_id}/uncordon"): Rule(ADMIN, EVERYBODYS),
    ("GET", "/v1/me"): Rule(READ, OWN),
    ("POST", "/v1/keys"): Rule(ADMIN, EVERYBODYS),
    ("GET", "/v1/keys"): Rule(ADMIN, EVERYBODYS),
    ("DELETE", "/v1/keys/{key_id}"): Rule(ADMIN, EVERYBODYS),
    ("GET", "/openapi.json"): Rule(READ, EVERYBODYS),
    ("GET", "/"): Rule(Open.TO_ALL, EVERYBODYS),
    ("GET", "/docs"): Rule(Open.TO_ALL, EVERYBODYS),
    ("GET", "/docs/{asset}"): Rule(Open.TO_ALL, EVERYBODYS),
    ("GET", "/metrics"): Rule(READ, EVERYBODYS),
    ("GET", "/livez"): Rule(Open.TO_ALL, EVERYBODYS),
    ("GET", "/readyz"): Rule(Open.TO_ALL, EVERYBODYS),
}
CONTRACT = "/v1/"  # before the paths of those that other programs rely on
OF_A_START = ("GET", "/v1/jobs/{job_id}/artifacts/{name}")  # a worker may read there what its own job starts from
# Even while nothing else needs a key: the first is made on the host, or whoever comes first could lock the others out.
KEY_ALWAYS = frozenset(row for row in ROUTES if row[1].startswith("/v1/keys"))
# Figures of the process alone are told while the store is away, or nobody would be told that it is.
WHILE_AWAY = ("GET", "/metrics")


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


def check_rows(routes: Iterable[BaseRoute]) -> None:
    """Raises RuntimeError with every route that has no row, and every row that has no route."""
    served = set[tuple[str, str]]()
    for each in iter_route_contexts(list(routes)):  # those of included routers one by one
        route = each.original_route
        methods = route.methods or () if isinstance(route, APIRoute) else ["*"]
        served |= {(method, each.path or "") for method in methods}
    if served != ROUTES.keys():
        raise RuntimeError(
            f"routes without a row in service/access.py: {sorted(served - ROUTES.keys())}, "
            f"rows without a route: {sorted(ROUTES.keys() - served)}"
        )


async def guard(request: Request) -> Caller:
    """Who asks, if they may. In front of every route, so that nothing of a request is read before.

    Raises NotAuthorized (no key, or none that is known), RepeatedHeader, ScopeMissing, LimitReached, and what the check
    of requests without a key does.
    """
    row = (request.method, request.scope["route"].path)
    needs, state = ROUTES[row].needs, request.app.state.opened
    if isinstance(needs, Open):
        return Caller()
    if row == OF_A_START and JOB_HEADER in request.headers:
        await check_start(request, state)
        return Caller()
    caller = await _caller(request, state, row)
    if needs not in caller.scope.implied:
        raise ScopeMissing(f'this needs a key of scope "{needs}", {caller.name} has "{caller.scope}"')
    return caller


async def _caller(request: Request, state: State, row: tuple[str, str]) -> Caller:
    """A key that is sent counts even where none is needed: whoever has just made the first one gets jobs of its own."""
    secret = bearer(request)
    with as_to_a_stranger():
        key = None if secret is None else await state.keys.find(secret)
    if key is not None:
        edge.caller.set(key.id)
        with contextlib.suppress(StoreUnavailable):  # full or read-only: what can still be read is shown
            await state.keys.use(key)
        return Caller(key)
    if row in KEY_ALWAYS or await state.gate.closed(while_away=row == WHILE_AWAY):
        raise NotAuthorized(_HOW if secret is None else "there is no such key, or it was revoked")
    check_local(request, state.settings)
    return Caller()


async def is_known(request: Request, state: State) -> bool:
    """Of a route that is open to all: whether who asks may be told more than all are."""
    try:
        await _caller(request, state, WHILE_AWAY)
    except DynoError:
        return False
    return True


async def may_go_on(state: State, caller: Caller) -> bool:
    """Whether an answer that stays open may: the key isn't revoked, or there is still none. While the store is away it
    may, as nothing comes from there."""
    with contextlib.suppress(StoreUnavailable):
        return await (state.keys.stands(caller.key.id) if caller.key else _open(state))
    return True


async def _open(state: State) -> bool:
    return not await state.gate.closed()


_HOW = 'this needs a key: send "Authorization: Bearer dyno_…". On the host, `dyno keys create` makes one'
CallerDep = Annotated[Caller, Depends(guard)]
