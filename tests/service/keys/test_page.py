"""The page of the API once there are keys: whoever opens it is asked for one."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.browser import shown
from tests.service.test_docs import ASKS_FOR_A_KEY


def test_without_a_key_the_page_asks_for_one_and_shows_nothing(service: httpx.Client, tmp_path: Path) -> None:
    page = shown(f"{service.base_url}/docs", tmp_path)
    assert ASKS_FOR_A_KEY in page.dom
    assert "this needs a key" in page.dom
    assert "/v1/jobs" not in page.dom
