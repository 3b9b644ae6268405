"""Every operation of the served document, requested for the owner's data by a stranger, an admin and the owner."""

import json

import httpx
import pytest
from fastapi import Depends, FastAPI

from dyno.models.api_key import Scope
from dyno.settings import Settings
from dyno.store.redis import Keys
from service.app import create_app
from service.auth import EVERYBODYS, OWN, READ, Keyless, authorize, requires
from service.dependencies import StateDep
from tests.service.keys.matrix import asks, canceled, operations, told

NOT_THERE = (
    *("job-not-found", "comparison-not-found", "delivery-not-found", "baseline-not-found", "alarm-not-found"),
    *("sweep-not-found", "schedule-not-found"),
)
RULES = create_app(Settings()).state.rules


class Matrix:
    """The callers of one service, and one line per fault in the responses."""

    def __init__(self, rules, belongings, *callers):
        self._rules, self._belongings = rules, belongings
        self._owner, self._stranger, self._admin = callers
        self._last = {who: canceled(who) for who in callers}

    def faults(self, found):
        """The stranger comes first, who may change nothing; the owner last, who may delete."""
        about = {}
        for each in found:
            try:
                about[each] = asks(each, self._belongings.names)
            except KeyError as unknown:
                yield f"{each}: add its requests to matrix.py, as it has {unknown}"
        refused = {each: self._told(self._stranger, all_of_it) for each, all_of_it in about.items()}
        for each, answers in refused.items():
            yield from self._leaks(each, about[each], answers)
        for each in about:
            if self._rules[each.method, each.path].whose is OWN and each.method != "DELETE":
                yield from self._not_for_admins(each, self._told(self._admin, about[each]))
        for each, answers in refused.items():
            yield from self._not_as_ruled(each, about[each], answers)

    def _told(self, who, all_of_it):
        return [told(who, ask, self._last[who]) for ask in all_of_it]

    def _leaks(self, each, about, answers):
        there = asks(each, self._belongings.nowhere)
        for ask, elsewhere, answer in zip(about, there, answers, strict=True):
            if answer.status >= 500:
                yield f"{each}: answers {answer.status}"
            if self._marks(answer, ask):
                yield f"{each}: tells a stranger what is the owner's"
            if ask != elsewhere:
                [unknown] = self._told(self._stranger, [elsewhere])
                if self._belongings.renamed(answer.text) != unknown.text or answer.status != unknown.status:
                    yield f"{each}: tells what is another's from what never was"

    def _not_for_admins(self, each, answers):
        if any(answer.status >= 500 or answer.code in NOT_THERE for answer in answers):
            yield f"{each}: isn't for admins"

    def _not_as_ruled(self, each, about, strangers):
        """Whether the owner gets its own data exactly where the rule says so; else leaks couldn't be found."""
        needs, whose = self._rules[each.method, each.path]
        owners = self._told(self._owner, about)
        kinds = [[(answer.status, answer.code) for answer in answers] for answers in (strangers, owners)]
        shown = [answer.status < 400 and self._marks(answer, ask) for answer, ask in zip(owners, about, strict=True)]
        owned = kinds[0] != kinds[1] or any(shown)
        if any(answer.status >= 500 for answer in owners):
            yield f"{each}: answers {[answer.status for answer in owners]}"
        if owned != (whose is OWN and needs is not Keyless.TO_ATTEMPTS):
            yield f"{each}: its rule is {whose.name}, and an owner is told {'more' if owned else 'no more'} than others"

    def _marks(self, answer, ask):
        """The marks of the owner in a response that weren't in its request."""
        sent = json.dumps(ask, default=str)
        return [mark for mark in self._belongings.marks if mark in answer.text and mark not in sent]


@pytest.fixture
def matrix(belongings, owner, everyone):
    return Matrix(RULES, belongings, owner.http, everyone[Scope.SUBMIT].http, everyone[Scope.ADMIN].http)


def test_no_operation_shows_another_keys_data(matrix, everyone):
    found = operations(everyone[Scope.READ].http.get("/openapi.json").json())
    assert list(matrix.faults(found)) == []


class Forgetful(FastAPI):
    """An app with routes that ignore keys."""

    def __init__(self, **options):
        super().__init__(**options)
        for path, endpoint in PLANTED.items():
            self.add_api_route(path, endpoint, dependencies=[Depends(authorize)])


@requires(READ, EVERYBODYS)
async def _everybodys_jobs(state: StateDep):
    return [str(job) for job in await state.client.zrange(Keys(state.settings.namespace).jobs, 0, -1)]


@requires(READ, OWN)
async def _own_jobs(state: StateDep):
    return await _everybodys_jobs(state)


PLANTED = {"/v1/everything": _everybodys_jobs, "/v1/own": _own_jobs, "/v1/all/{sweep_id}": _own_jobs}


def test_the_matrix_finds_leaking_routes_and_untested_ones(belongings, owner, everyone, settings, serve, monkeypatch):
    monkeypatch.setattr("service.app.FastAPI", Forgetful)
    app = create_app(settings)
    with serve(app) as http:
        callers = [
            httpx.Client(base_url=http.base_url, headers=who.http.headers, timeout=30)
            for who in (owner, everyone[Scope.SUBMIT], everyone[Scope.ADMIN])
        ]
        found = operations(callers[2].get("/openapi.json").json())
        planted = [each for each in found if each.path in PLANTED]
        faults = list(Matrix(app.state.rules, belongings, *callers).faults(planted))
    assert faults == [
        "GET /v1/all/{sweep_id}: add its requests to matrix.py, as it has 'all'",
        "GET /v1/everything: tells a stranger what is the owner's",
        "GET /v1/own: tells a stranger what is the owner's",
        "GET /v1/everything: its rule is EVERYBODYS, and an owner is told more than others",
    ]
