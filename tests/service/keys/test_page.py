"""The page of the API and the dashboard prompt for a key once one exists, in a real browser."""

import pytest

from dyno.models.api_key import Scope
from service import streaming
from tests.browser import browser, grave_violations, width_of

pytestmark = pytest.mark.verify  # a browser takes seconds of both cores to start


def test_without_a_key_the_page_prompts_for_one_and_shows_nothing(service):
    with browser(str(service.base_url)) as shown:
        shown.page.goto("/docs")
        shown.page.locator("#ask input").wait_for()
        shown.page.get_by_text("this needs an API key").wait_for()
        assert "/v1/jobs" not in shown.page.content()


def test_with_a_key_the_page_shows_the_api_and_sends_it_with_requests(service, caller):
    key, mine = caller(Scope.READ), "#operations-keys-getMe"
    with browser(str(service.base_url)) as shown:
        shown.page.goto("/docs")
        shown.page.fill("#ask input", f"dyno_{'0' * 64}")
        shown.page.click("#ask button")
        shown.page.get_by_text("this key is unknown").wait_for()
        shown.page.fill("#ask input", key.secret)
        shown.page.click("#ask button")
        shown.page.locator("#ask").wait_for(state="hidden")
        shown.page.locator(".btn.authorize.locked").wait_for()
        for part in (".opblock-summary-control", ".try-out__btn", ".execute"):
            shown.page.click(f"{mine} {part}")
        told = shown.page.locator(f"{mine} .live-responses-table .response").first.inner_text()
    assert told.startswith("200")
    assert key.id in told


def test_a_person_logs_in_is_refused_what_the_key_may_not_do_and_logs_out_in_all_tabs(service, caller, monkeypatch):
    monkeypatch.setattr(streaming, "LOOK_EVERY_S", 0.1)
    key = caller(Scope.READ)
    with browser(str(service.base_url)) as shown:
        page = shown.page
        page.goto("/jobs?status=failed")
        page.get_by_label("API key").fill(key.secret)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/jobs?status=failed")
        page.goto("/workloads/matmul")
        page.get_by_text("This key may only read").wait_for()
        assert page.get_by_role("button", name="Run").count() == 0
        refused = page.goto("/keys")
        assert refused.status == 403
        assert "scope" in page.locator("main").inner_text()
        page.goto("/")
        other = page.context.new_page()
        other.goto("/fleet")
        other.get_by_role("button", name="Log out").click()
        other.wait_for_url("**/login")
        page.wait_for_url("**/login?next=/")
        assert shown.outside == []


def test_the_page_of_keys_suits_a_phone_and_a_screen_reader(service, caller):
    admin = caller(Scope.ADMIN)
    with browser(str(service.base_url), viewport={"width": 375, "height": 800}, bypass_csp=True) as shown:
        page = shown.page
        page.goto("/keys")
        page.get_by_label("API key").fill(admin.secret)
        page.get_by_role("button", name="Log in").click()
        page.get_by_label("Name").fill("guest")
        page.get_by_label("Expires").select_option("in 7 days")
        page.get_by_role("button", name="Create a key").click()
        page.get_by_text("This is the only time that its secret is shown").wait_for()
        assert page.locator("pre").evaluate("secret => secret.scrollWidth <= secret.clientWidth"), "all is in sight"
        for path in ("/keys", f"/keys/{admin.id}/revoke"):
            page.goto(path)
            assert grave_violations(page) == {}, path
            assert width_of(page) <= 375, path


def test_the_menu_on_a_phone_has_several_links_in_a_line_beside_a_short_name(service, caller):
    key = caller(Scope.READ)
    with browser(str(service.base_url), viewport={"width": 375, "height": 800}) as shown:
        page = shown.page
        page.goto("/")
        page.get_by_label("API key").fill(key.secret)
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("test (read)").wait_for()
        lines = {box["y"] for link in page.locator("header nav a").all() if (box := link.bounding_box())}
        assert len(lines) <= 4
