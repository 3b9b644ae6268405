"""Every route by every kind of key: what is expected is read off the one table that the service goes by."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest
import redis
from fastapi import APIRouter, FastAPI

from dyno.access import Scope
from dyno.devices.device import Device
from dyno.settings import Settings
from dyno.store.keys import Keys
from service import access
from service.access import ROUTES, Open, check_rows
from service.app import create_app
from tests.service.keys.conftest import Caller

NOT_THERE = ("job-not-found", "comparison-not-found", "delivery-not-found")
ROWS = sorted(ROUTES, key=lambda row: (row[1], row[0]))
UNDOCUMENTED = ("/openapi.json", "/", "/docs", "/docs/{asset}")
OF_A_KEY = [row for row in ROWS if {"job_id", "comparison_id", "delivery_id"} & set(re.findall(r"{(\w+)}", row[1]))]


@pytest.fixture(scope="module")
def everyone(caller: Callable[..., Caller]) -> Mapping[Scope, Caller]:
    """A caller of each scope, none of whom has jobs."""
    return {scope: caller(scope) for scope in Scope}


@pytest.fixture(scope="module")
def document() -> dict[str, dict[str, dict[str, object]]]:
    found: dict[str, dict[str, dict[str, object]]] = create_app(Settings()).openapi()["paths"]
    return found


@pytest.fixture
def paths(
    finished: Callable[..., str],
    caller: Callable[..., Caller],
    everyone: Mapping[Scope, Caller],
    owner: Caller,
    offered: Device,
    client: redis.Redis,
    settings: Settings,
) -> Iterator[Mapping[str, str]]:
    """What stands for the parameters of paths: the owner's job and comparison, and what is everybody's."""
    jobs = [finished(spec={"webhook": "https://127.0.0.1:1/"}), finished()]
    comparison = owner.http.post("/v1/comparisons", json={"jobs": jobs}).raise_for_status().json()["id"]
    spare = caller(Scope.READ)
    own = {"job_id": jobs[0], "comparison_id": comparison, "delivery_id": jobs[0].replace("job_", "msg_")}
    yield own | {"device_id": offered.id, "key_id": spare.id, "name": "matmul", "asset": "page.js"}
    client.delete(Keys(settings.namespace).cordoned)
    http = everyone[Scope.ADMIN].http
    for job in http.get("/v1/jobs", params={"status": "queued"}).json()["data"]:  # which ran again
        http.post(f"{job['urls']['self']}/cancel").raise_for_status()


def ask(
    http: httpx.Client, row: tuple[str, str], paths: Mapping[str, str], authorization: str | None
) -> httpx.Response:
    method, path = row
    headers = {"X-Request-ID": "same"} | ({"Authorization": authorization} if authorization else {})
    body = {"json": {}} if method == "POST" else {}
    with http.stream(method, path.format(**paths), headers=headers, **body) as answer:  # type: ignore[arg-type]
        if not answer.headers.get("content-type", "").startswith("text/event-stream"):  # which may have no end
            answer.read()
    return answer


def code(answer: httpx.Response) -> str | None:
    is_problem = answer.headers.get("content-type") == "application/problem+json" and answer.content
    return str(answer.json()["code"]) if is_problem else None


def test_the_table_has_a_row_for_every_route_of_the_document_and_no_other(
    document: dict[str, dict[str, object]],
) -> None:
    documented = {(method.upper(), path) for path, operations in document.items() for method in operations}
    assert documented | {("GET", path) for path in UNDOCUMENTED} == ROUTES.keys()


class Beside(FastAPI):
    """With a route that is in no part of the service, and so has no guard in front."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_api_route("/v1/beside", lambda: None)


def test_a_route_without_a_row_stops_the_start_and_so_does_a_row_without_a_route(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgotten = APIRouter()
    forgotten.add_api_route("/v1/forgotten", lambda: None)
    with pytest.raises(RuntimeError, match=r"without a row.*/v1/forgotten"):
        check_rows(forgotten.routes)
    with monkeypatch.context() as around:
        around.setattr("service.app.FastAPI", Beside)
        with pytest.raises(RuntimeError, match=r"without a row.*/v1/beside"):
            create_app(Settings(redis_url="unix:///nowhere"))
    monkeypatch.setitem(access.ROUTES, ("GET", "/v1/gone"), Scope.READ)
    with pytest.raises(RuntimeError, match=r"without a route.*/v1/gone"):
        create_app(Settings(redis_url="unix:///nowhere"))


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_without_a_key_or_with_one_that_is_none_a_request_is_refused(
    row: tuple[str, str], service: httpx.Client, paths: Mapping[str, str]
) -> None:
    for authorization in (None, "Bearer", "Basic ZHlubzo=", "Bearer dyno", f"Bearer dyno_{'0' * 64}"):
        answer = ask(service, row, paths, authorization)
        if ROUTES[row] is Open.TO_ALL:
            assert answer.status_code in (200, 307)
        elif ROUTES[row] is not Open.TO_ATTEMPTS:
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert row[0] == "HEAD" or code(answer) == "not-authorized"
            assert "000000" not in answer.text


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_a_key_gets_as_far_as_its_scope(
    row: tuple[str, str], service: httpx.Client, paths: Mapping[str, str], everyone: Mapping[Scope, Caller]
) -> None:
    needs = ROUTES[row]
    for scope, who in everyone.items():
        answer = ask(service, row, paths, f"Bearer {who.secret}")
        if needs is Open.TO_ATTEMPTS:
            assert code(answer) == "stale-token"
        elif needs is Open.TO_ALL or needs in scope.implied:
            assert answer.status_code not in (401, 403), answer.text
        else:
            assert answer.status_code == 403
            assert code(answer) == "scope-missing"
            assert f'"{needs}"' in answer.json()["detail"]


@pytest.mark.parametrize("row", [row for row in OF_A_KEY if ROUTES[row] in list(Scope)], ids=" ".join)
def test_what_is_another_keys_is_not_there_and_nothing_tells_it_from_what_never_was(
    row: tuple[str, str],
    service: httpx.Client,
    paths: Mapping[str, str],
    everyone: Mapping[Scope, Caller],
    owner: Caller,
) -> None:
    never = "01J00000000000000000000000"
    kinds = {"job_id": "job", "comparison_id": "cmp", "delivery_id": "msg"}
    nowhere = {**paths, **{name: f"{kind}_{never}" for name, kind in kinds.items()}}
    stranger = f"Bearer {everyone[Scope.SUBMIT].secret}"
    refused, unknown = (ask(service, row, where, stranger) for where in (paths, nowhere))
    assert (refused.status_code, unknown.status_code) == (404, 404)
    told = refused.text
    for name in kinds:
        told = told.replace(paths[name], nowhere[name])
    assert told == unknown.text
    assert row[0] == "HEAD" or code(refused) in NOT_THERE
    for who in (owner, everyone[Scope.ADMIN])[: 1 if row[0] == "DELETE" else 2]:  # what was deleted is nobody's
        answer = ask(service, row, paths, f"Bearer {who.secret}")
        assert answer.status_code not in (401, 403)
        assert code(answer) not in NOT_THERE


@pytest.mark.parametrize("starts_from", [False, True], ids=["to store a file", "to read what a job starts from"])
def test_who_holds_no_attempt_is_not_told_whether_there_is_such_a_job(
    service: httpx.Client, paths: Mapping[str, str], submitted: Callable[..., str], starts_from: bool
) -> None:
    jobs = [paths["job_id"], submitted(), "job_01J00000000000000000000000"]
    files = "/v1/jobs/{}/artifacts/model.weights.h5"
    headers = {"X-Request-ID": "same", "Authorization": f"Bearer {'0' * 32}"}
    if starts_from:
        answers = [service.get(files.format(jobs[0]), headers=headers | {"Dyno-Job": job}) for job in jobs]
    else:
        answers = [service.put(files.format(job), headers=headers, content=b"0") for job in jobs]
    [(status, _)] = {(each.status_code, each.text.replace(job, "it")) for job, each in zip(jobs, answers, strict=True)}
    assert (status, code(answers[0])) == (409, "stale-token")


def test_the_document_names_the_scope_and_what_is_answered_to_whoever_lacks_it(
    document: dict[str, dict[str, dict[str, object]]],
) -> None:
    for (method, path), needs in ROUTES.items():
        operation = document.get(path, {}).get(method.lower())
        if operation is None:
            continue
        of_attempts = [{"attempt": []}] if needs is Open.TO_ATTEMPTS else None
        assert operation.get("security") == (of_attempts if isinstance(needs, Open) else [{"key": [needs.value]}])
        if not isinstance(needs, Open):
            assert {"401", "403", "429"} <= operation["responses"].keys()  # type: ignore[attr-defined]
