"""The page of the API prompts for a key once one exists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from dyno.models.api_key import Scope
from tests.browser import opened, shown
from tests.service.keys.conftest import Caller
from tests.service.routes.test_docs import ASKS_FOR_A_KEY

pytestmark = pytest.mark.verify  # a browser takes seconds of both cores to start


def test_without_a_key_the_page_prompts_for_one_and_shows_nothing(service: httpx.Client, tmp_path: Path) -> None:
    page = shown(f"{service.base_url}/docs", tmp_path)
    assert ASKS_FOR_A_KEY in page.dom
    assert "this needs an API key" in page.dom
    assert "/v1/jobs" not in page.dom


def test_with_a_key_the_page_shows_the_api_and_sends_it_with_requests(
    service: httpx.Client, caller: Callable[..., Caller], tmp_path: Path
) -> None:
    key, mine = caller(Scope.READ), "#operations-keys-getMe"
    with opened(f"{service.base_url}/docs", tmp_path) as page:
        page.until("document.getElementById('ask')?.hidden === false")
        for given, said in ((f"dyno_{'0' * 64}", "this key is unknown"), (key.secret, "")):
            page.fill("#ask input", given)
            page.click("#ask button")
            page.until(f"document.getElementById('said').textContent.startsWith({said!r})")
            page.until(f"document.getElementById('ask').hidden === {str(not said).lower()}")
        page.until("document.querySelector('.btn.authorize.locked') !== null")
        for part in (".opblock-summary-control", ".try-out__btn", ".execute"):
            page.click(f"{mine} {part}")
        page.until(f"document.querySelector('{mine} .live-responses-table .response') !== null")
        told = page.evaluate(f"document.querySelector('{mine} .live-responses-table .response').textContent")
    assert told.startswith("200")
    assert key.id in told
