"""Log in to the dashboard with a key: the cookie, what it allows, and its end."""

from datetime import datetime

import httpx
import pytest

from dyno.models.api_key import Scope, digest_of
from dyno.store.api_keys import SESSION_S
from dyno.store.redis import Keys
from service.auth import SESSION_COOKIE
from tests.pages import posts_of, text_of

BODY = {"workload": "matmul", "params": {"n": 64}, "queue_if_absent": True}


@pytest.fixture
def browser(service):
    """Keeps cookies, and sends its forms as a page of the service does."""
    own = {"Origin": str(service.base_url).rstrip("/")}
    with httpx.Client(base_url=service.base_url, headers=own) as http:
        yield http


def log_in(browser, secret, following="/"):
    return browser.post("/login", data={"key": secret, "next": following})


def test_without_a_key_a_page_leads_to_the_form_and_back(browser, caller):
    asked = browser.get("/jobs?status=failed")
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=/jobs%3Fstatus%3Dfailed")
    assert 'value="/jobs?status=failed"' in browser.get(asked.headers["location"]).text
    entered = log_in(browser, caller(Scope.READ).secret, "/jobs")
    assert (entered.status_code, entered.headers["location"]) == (303, "/jobs")
    assert {"HttpOnly", "SameSite=lax"} <= set(entered.headers["set-cookie"].split("; "))
    assert browser.get("/jobs").status_code == 200
    assert browser.get("/v1/me").json()["key"]["scope"] == "read", "scripts of the page send it too"


def test_a_wrong_key_is_refused(browser):
    refused = log_in(browser, f"dyno_{'0' * 64}")
    assert refused.status_code == 401
    assert "unknown or revoked" in refused.text
    assert SESSION_COOKIE not in browser.cookies


def test_no_link_leads_to_another_site_after_the_log_in(browser, caller):
    secret = caller(Scope.READ).secret
    for following in ("https://elsewhere.example", "//elsewhere.example", "/\\elsewhere.example", ""):
        assert log_in(browser, secret, following).headers["location"] == "/"


def test_a_key_is_refused_what_it_may_not_do_and_sees_no_others_jobs(browser, caller):
    theirs = caller(Scope.SUBMIT).http.post("/v1/jobs", json=BODY).json()["id"]
    log_in(browser, caller(Scope.READ).secret)
    assert browser.get(f"/jobs/{theirs}").status_code == 404
    assert theirs not in browser.get("/").text + browser.get("/jobs").text
    refused = browser.post("/workloads/matmul", data={"queue_if_absent": "true"})
    assert refused.status_code == 403
    assert "scope" in refused.text
    assert browser.get("/keys").status_code == 403


def test_a_form_of_another_site_changes_nothing(service, browser, caller):
    mine = caller(Scope.SUBMIT)
    job = mine.http.post("/v1/jobs", json=BODY).json()["id"]
    log_in(browser, mine.secret)
    cookie = {"Cookie": f"{SESSION_COOKIE}={browser.cookies[SESSION_COOKIE]}"}
    for foreign in ({"Origin": "https://elsewhere.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert service.post(f"/jobs/{job}/cancel", headers=cookie | foreign).status_code == 403
        assert service.post(f"/v1/jobs/{job}/cancel", headers=cookie | foreign).status_code == 403
    assert mine.http.get(f"/v1/jobs/{job}").json()["status"] == "queued"
    own = {"Origin": str(service.base_url).rstrip("/")}
    assert service.post(f"/jobs/{job}/cancel", headers=cookie | own).status_code == 303


def test_the_cookie_has_an_id_of_which_redis_keeps_the_hash_for_twelve_hours(browser, caller, client, settings):
    mine = caller(Scope.READ)
    log_in(browser, mine.secret)
    session = browser.cookies[SESSION_COOKIE]
    assert mine.secret not in session
    assert 0 < client.ttl(Keys(settings.namespace).session(digest_of(session))) <= SESSION_S == 12 * 3600
    assert not list(client.scan_iter(f"*{session}*")), "who reads Redis can't log in"
    log_in(browser, mine.secret)
    assert browser.cookies[SESSION_COOKIE] != session
    client.delete(Keys(settings.namespace).session(digest_of(session)))
    old = {"Cookie": f"{SESSION_COOKIE}={session}"}
    with httpx.Client(base_url=browser.base_url, headers=old) as other:
        assert other.get("/v1/me").status_code == 401, "a session that has expired"
    with httpx.Client(base_url=browser.base_url, headers={"Cookie": f"{SESSION_COOKIE}={mine.secret}"}) as other:
        assert other.get("/v1/me").status_code == 401, "the key itself is no session"


def test_logging_out_and_a_revoked_key_end_the_session(browser, caller):
    mine, admin = caller(Scope.READ), caller(Scope.ADMIN)
    log_in(browser, mine.secret)
    kept = {"Cookie": f"{SESSION_COOKIE}={browser.cookies[SESSION_COOKIE]}"}
    assert browser.post("/logout").headers["location"] == "/login"
    assert browser.get("/").status_code == 303
    with httpx.Client(base_url=browser.base_url, headers=kept) as other:
        assert other.get("/").status_code == 303, "also for a copy of the cookie"
    log_in(browser, mine.secret)
    assert admin.http.delete(f"/v1/keys/{mine.id}").status_code == 204
    assert browser.get("/").headers["location"] == "/login?next=/"


def test_a_key_that_may_only_read_sees_no_form_that_it_may_not_send(browser, caller):
    log_in(browser, caller(Scope.READ).secret)
    pages = ("/", "/workloads", "/workloads/matmul", "/sweeps", "/schedules", "/history", "/fleet", "/advice")
    for path in (*pages, "/workloads/matmul/sweep", "/workloads/matmul/schedule"):
        assert posts_of(browser.get(path)) == ["/logout"], path
    for path in ("/", "/jobs", "/history"):
        listed = text_of(browser.get(path))
        assert "This key sees no results: only those of its own jobs" in listed, path
        assert "dyno run" not in listed, "the key may not run it"
    assert "scope submit" in text_of(browser.get("/workloads/matmul"))
    for path in ("/workloads/matmul", "/sweeps", "/workloads/matmul/schedule", "/workloads/matmul/sweep"):
        refused = browser.post(path, data={"preset": "matmul-devices"})
        assert (refused.status_code, "scope" in text_of(refused)) == (403, True), path
        assert posts_of(refused) == ["/logout"], "a refusal doesn't log out"
        assert "Run a benchmark" not in text_of(refused)
    log_in(browser, caller(Scope.SUBMIT).secret)
    assert "/workloads/matmul" in posts_of(browser.get("/workloads/matmul"))
    assert 'href="/keys"' not in browser.get("/").text


def test_the_menu_of_an_admin_has_the_page_of_keys(browser, caller):
    log_in(browser, caller(Scope.ADMIN).secret)
    assert 'href="/keys"' in browser.get("/").text


def test_an_expired_key_ends_the_session_and_is_told_so(browser, caller, client, settings):
    mine = caller(Scope.READ)
    log_in(browser, mine.secret)
    client.hset(Keys(settings.namespace).api_key(mine.id), "expires_at", "1700000000.000000")
    assert browser.get("/jobs").headers["location"] == "/login?next=/jobs"
    refused = log_in(browser, mine.secret)
    assert refused.status_code == 401
    assert "This key expired at 2023-11-14T22:13:20Z" in refused.text


def test_the_page_of_keys_shows_when_they_expire_and_creates_keys_that_do(browser, caller, client, settings):
    past = caller(Scope.READ)
    client.hset(Keys(settings.namespace).api_key(past.id), "expires_at", "1700000000.000000")
    log_in(browser, caller(Scope.ADMIN, requests_per_s=1000).secret)
    created = browser.post("/keys", data={"name": "guest", "scope": "read", "expires_in_s": "604800"})
    assert created.status_code == 201, text_of(created)
    [key] = [each for each in browser.get("/v1/keys").json()["data"] if each["name"] == "guest"]
    until = datetime.fromisoformat(key["expires_at"])
    assert (until - datetime.fromisoformat(key["created_at"])).days == 7
    assert f"It expires at {until:%Y-%m-%d %H:%M} UTC" in text_of(created)
    rows = {row.partition("key_")[2][:16]: row for row in browser.get("/keys").text.split("<tr>")}
    assert f"{until:%Y-%m-%d %H:%M} UTC" in rows[key["id"].removeprefix("key_")]
    assert "expired 2023-11-14 22:13 UTC" in rows[past.id.removeprefix("key_")]
    assert "high priority, requests a second: 1000" in text_of(browser.get("/keys"))
    for wrong in ("0", "soon", "1e99"):
        refused = browser.post("/keys", data={"name": "odd", "scope": "read", "expires_in_s": wrong})
        assert (refused.status_code, "expires_in_s" in text_of(refused)) == (422, True), wrong


def test_an_admin_creates_and_revokes_keys_on_their_page(browser, caller):
    log_in(browser, caller(Scope.ADMIN).secret)
    assert browser.post("/keys", data={"name": "2026", "scope": "read"}).status_code == 201
    created = browser.post("/keys", data={"name": "from the page", "scope": "read"})
    assert created.status_code == 201
    assert created.headers["cache-control"] == "no-store"
    secret = created.text.partition('class="copy">')[2].partition("<")[0]
    me = browser.get("/v1/me", headers={"Authorization": f"Bearer {secret}"}).json()
    assert me["key"]["name"] == "from the page"
    assert secret not in browser.get("/keys").text
    leads_to = f"/keys/{me['key']['id']}/revoke"
    assert posts_of(browser.get("/keys")) == ["/logout", "/keys"], "no single click revokes a key"
    assert f'href="{leads_to}"' in browser.get("/keys").text
    asked = browser.get(leads_to)
    assert "Revoke the key from the page?" in text_of(asked)
    assert browser.get("/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    assert posts_of(asked) == ["/logout", leads_to]
    assert browser.post(leads_to).status_code == 303
    assert posts_of(browser.get(leads_to)) == ["/logout"], "it is revoked already"
    assert browser.get("/keys/key_0000000000000000/revoke").status_code == 404
    assert browser.get("/v1/me", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
    assert browser.post("/keys", data={"name": "<odd>", "scope": "read"}).status_code == 422
