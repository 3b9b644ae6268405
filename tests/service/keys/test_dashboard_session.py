"""Log in to the dashboard with a key: the cookie, what it allows, and its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from dyno.models.api_key import Scope
from service.auth import SESSION_COOKIE
from tests.service.keys.conftest import Caller

BODY = {"workload": "matmul", "params": {"n": 64}, "queue_if_absent": True}


@pytest.fixture
def browser(service: httpx.Client) -> Iterator[httpx.Client]:
    """Keeps cookies, and sends its forms as a page of the service does."""
    own = {"Origin": str(service.base_url).rstrip("/")}
    with httpx.Client(base_url=service.base_url, headers=own) as http:
        yield http


def log_in(browser: httpx.Client, secret: str, following: str = "/") -> httpx.Response:
    return browser.post("/login", data={"key": secret, "next": following})


def test_without_a_key_a_page_leads_to_the_form_and_back(browser: httpx.Client, caller: Callable[..., Caller]) -> None:
    asked = browser.get("/jobs?status=failed")
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=/jobs%3Fstatus%3Dfailed")
    assert 'value="/jobs?status=failed"' in browser.get(asked.headers["location"]).text
    entered = log_in(browser, caller(Scope.READ).secret, "/jobs")
    assert (entered.status_code, entered.headers["location"]) == (303, "/jobs")
    assert {"HttpOnly", "SameSite=lax"} <= set(entered.headers["set-cookie"].split("; "))
    assert browser.get("/jobs").status_code == 200
    assert browser.get("/v1/me").json()["key"]["scope"] == "read", "scripts of the page send it too"


def test_a_wrong_key_is_refused(browser: httpx.Client) -> None:
    refused = log_in(browser, f"dyno_{'0' * 64}")
    assert refused.status_code == 401
    assert "unknown or revoked" in refused.text
    assert SESSION_COOKIE not in browser.cookies


def test_no_link_leads_to_another_site_after_the_log_in(browser: httpx.Client, caller: Callable[..., Caller]) -> None:
    secret = caller(Scope.READ).secret
    for following in ("https://elsewhere.example", "//elsewhere.example", "/\\elsewhere.example", ""):
        assert log_in(browser, secret, following).headers["location"] == "/"


def test_a_key_is_refused_what_it_may_not_do_and_sees_no_others_jobs(
    browser: httpx.Client, caller: Callable[..., Caller]
) -> None:
    theirs = caller(Scope.SUBMIT).http.post("/v1/jobs", json=BODY).json()["id"]
    log_in(browser, caller(Scope.READ).secret)
    assert browser.get(f"/jobs/{theirs}").status_code == 404
    assert theirs not in browser.get("/").text + browser.get("/jobs").text
    refused = browser.post("/workloads/matmul", data={"queue_if_absent": "true"})
    assert refused.status_code == 403
    assert "scope" in refused.text
    assert browser.get("/keys").status_code == 403


def test_a_form_of_another_site_changes_nothing(service: httpx.Client, caller: Callable[..., Caller]) -> None:
    mine = caller(Scope.SUBMIT)
    job = mine.http.post("/v1/jobs", json=BODY).json()["id"]
    cookie = {"Cookie": f"{SESSION_COOKIE}={mine.secret}"}
    for foreign in ({"Origin": "https://elsewhere.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert service.post(f"/jobs/{job}/cancel", headers=cookie | foreign).status_code == 403
        assert service.post(f"/v1/jobs/{job}/cancel", headers=cookie | foreign).status_code == 403
    assert mine.http.get(f"/v1/jobs/{job}").json()["status"] == "queued"
    own = {"Origin": str(service.base_url).rstrip("/")}
    assert service.post(f"/jobs/{job}/cancel", headers=cookie | own).status_code == 303


def test_logging_out_and_a_revoked_key_end_the_session(browser: httpx.Client, caller: Callable[..., Caller]) -> None:
    mine, admin = caller(Scope.READ), caller(Scope.ADMIN)
    log_in(browser, mine.secret)
    assert browser.post("/logout").headers["location"] == "/login"
    assert browser.get("/").status_code == 303
    log_in(browser, mine.secret)
    assert admin.http.delete(f"/v1/keys/{mine.id}").status_code == 204
    assert browser.get("/").headers["location"] == "/login?next=/"


def test_an_admin_creates_and_revokes_keys_on_their_page(browser: httpx.Client, caller: Callable[..., Caller]) -> None:
    log_in(browser, caller(Scope.ADMIN).secret)
    assert browser.post("/keys", data={"name": "2026", "scope": "read"}).status_code == 201
    created = browser.post("/keys", data={"name": "from the page", "scope": "read"})
    assert created.status_code == 201
    assert created.headers["cache-control"] == "no-store"
    secret = created.text.partition('class="copy">')[2].partition("<")[0]
    me = browser.get("/v1/me", headers={"Authorization": f"Bearer {secret}"}).json()
    assert me["key"]["name"] == "from the page"
    assert secret not in browser.get("/keys").text
    assert browser.post(f"/keys/{me['key']['id']}/revoke").status_code == 303
    assert browser.get("/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    assert browser.post("/keys", data={"name": "<odd>", "scope": "read"}).status_code == 422
