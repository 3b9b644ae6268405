"""The page of the API prompts for a key once one exists."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from dyno.models.api_key import Scope
from tests.browser import browser
from tests.service.keys.conftest import Caller

pytestmark = pytest.mark.verify  # a browser takes seconds of both cores to start


def test_without_a_key_the_page_prompts_for_one_and_shows_nothing(service: httpx.Client) -> None:
    with browser(str(service.base_url)) as shown:
        shown.page.goto("/docs")
        shown.page.locator("#ask input").wait_for()
        shown.page.get_by_text("this needs an API key").wait_for()
        assert "/v1/jobs" not in shown.page.content()


def test_with_a_key_the_page_shows_the_api_and_sends_it_with_requests(
    service: httpx.Client, caller: Callable[..., Caller]
) -> None:
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
