"""Every route with every kind of key, checked against the rule that the route declares."""

from html import unescape

import pytest
from fastapi import APIRouter, FastAPI

from dyno.settings import Settings
from service import pages
from service.app import create_app
from service.auth import Keyless, route_rules
from tests.service.keys.conftest import problem
from tests.service.keys.matrix import Operation, asks, operations, told

RULES = create_app(Settings()).state.rules
ROWS = sorted(RULES, key=lambda row: (row[1], row[0]))
_GUIDE = ("/docs/guide", "/docs/guide/{path:path}")
UNDOCUMENTED = {("GET", path) for path in ("/openapi.json", "/docs", "/docs/{asset}", *_GUIDE)}
PAGES = route_rules(pages.router.routes).keys()
# Making the data takes most of the time, so rows share it: a deletion can only disturb another one.
GROUPS = {method: [row for row in ROWS if row[0] == method] for method in sorted({row[0] for row in ROWS})}


@pytest.fixture(scope="module")
def document():
    return create_app(Settings()).openapi()


@pytest.fixture
def ask(document, service, belongings):
    """Send the request of a row for the owner's data."""
    by_row = {(each.method, each.path): each for each in operations(document)}

    def one(row, authorization):
        operation = by_row.get(row, Operation(*row))
        return told(service, asks(operation, belongings.names)[0], authorization=authorization)

    return one


def test_rules_cover_exactly_the_routes_of_the_document(document):
    documented = {(each.method, each.path) for each in operations(document)}
    assert documented | UNDOCUMENTED | PAGES == RULES.keys()


class Beside(FastAPI):
    """An app with a route outside the service's routers, without `authorize`."""

    def __init__(self, **options):
        super().__init__(**options)
        self.add_api_route("/v1/beside", lambda: None)


def test_a_route_without_a_rule_prevents_the_start(monkeypatch):
    forgotten = APIRouter()
    forgotten.add_api_route("/v1/forgotten", lambda: None)
    with pytest.raises(RuntimeError, match=r"without @requires.*/v1/forgotten"):
        route_rules(forgotten.routes)
    monkeypatch.setattr("service.app.FastAPI", Beside)
    with pytest.raises(RuntimeError, match=r"without @requires.*/v1/beside"):
        create_app(Settings(redis_url="unix:///nowhere"))


def test_requests_without_a_valid_key_are_refused(ask):
    for row in ROWS:
        for authorization in (None, "Bearer", "Basic ZHlubzo=", "Bearer dyno", f"Bearer dyno_{'0' * 64}"):
            _expect_refusal(row, ask(row, authorization))


def _expect_refusal(row, answer):
    needs = RULES[row].needs
    if needs is Keyless.TO_ALL:
        assert answer.status in (200, 303, 404, 415)
    elif needs is Keyless.TO_ATTEMPTS:
        assert answer.code in ("not-authorized", "stale-token")
    elif row in PAGES:
        assert answer.status == 303
        assert "location: /login?next=/" in answer.text
    else:
        assert answer.status == 401
        assert "www-authenticate: Bearer" in answer.text
        assert row[0] == "HEAD" or answer.code == "not-authorized"
        assert "000000" not in answer.text


@pytest.mark.parametrize("rows", GROUPS.values(), ids=GROUPS)
def test_a_key_can_use_exactly_the_routes_of_its_scope(rows, ask, everyone):
    for row in rows:
        for scope, who in everyone.items():
            _expect_scope(row, scope, ask(row, f"Bearer {who.secret}"))


def _expect_scope(row, scope, answer):
    needs = RULES[row].needs
    if needs is Keyless.TO_ATTEMPTS:
        assert answer.code == "stale-token"
    elif needs is Keyless.TO_ALL or needs in scope.implied:
        assert answer.status not in (401, 403), answer.text
        assert answer.status < 500, answer.text
    else:
        assert answer.status == 403
        assert answer.code == "scope-missing"
        assert f'"{needs}"' in unescape(answer.text.replace("\\", ""))


@pytest.mark.parametrize("starts_from", [False, True], ids=["to store a file", "to read what a job starts from"])
def test_without_a_token_a_jobs_existence_is_not_revealed(service, job_id, submitted, starts_from):
    jobs = [job_id, submitted(), "job_01J00000000000000000000000"]
    files = "/v1/jobs/{}/artifacts/model.weights.h5"
    headers = {"X-Request-ID": "same", "Authorization": f"Bearer {'0' * 32}"}
    if starts_from:
        answers = [service.get(files.format(jobs[0]), headers=headers | {"Dyno-Job": job}) for job in jobs]
    else:
        answers = [service.put(files.format(job), headers=headers, content=b"0") for job in jobs]
    [(status, _)] = {(each.status_code, each.text.replace(job, "it")) for job, each in zip(jobs, answers, strict=True)}
    assert (status, problem(answers[0])[1]) == (409, "stale-token")


def test_the_document_names_each_routes_scope_and_its_refusals(document):
    for (method, path), (needs, _) in RULES.items():
        operation = document["paths"].get(path, {}).get(method.lower())
        if operation is None:
            continue
        of_attempts = [{"attempt": []}] if needs is Keyless.TO_ATTEMPTS else None
        assert operation.get("security") == (of_attempts if isinstance(needs, Keyless) else [{"key": [needs.value]}])
        if not isinstance(needs, Keyless):
            assert {"401", "403", "429"} <= operation["responses"].keys()
