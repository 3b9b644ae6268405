"""Pages of the dashboard as a person reads them."""

from __future__ import annotations

import re
from html import escape, unescape

import httpx


def text_of(page: httpx.Response) -> str:
    """The words of the page."""
    shown = re.sub(r"<[^>]*>", " ", page.text)
    return " ".join(unescape(shown).replace("\xa0", " ").split())


def beside(page: httpx.Response, field: str) -> tuple[str, str]:
    """What the form has in a field, and what the page says is wrong with it."""
    found = re.search(rf'name="{re.escape(escape(field))}" value="([^"]*)".*?</label>', page.text, re.DOTALL)
    assert found, f"no field {field}"
    wrong = re.search(r'class="wrong"[^>]*>([^<]*)', found[0])
    return unescape(found[1]), unescape(wrong[1]) if wrong else ""


def posts_of(page: httpx.Response) -> list[str]:
    """Where the forms of the page lead that change something."""
    return [unescape(each) for each in re.findall(r'<form[^>]*method="post"[^>]*action="([^"]*)"', page.text)]
