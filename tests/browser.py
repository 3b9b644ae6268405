"""A real browser, Debian's Chromium under Playwright, that can reach only this host."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files

import pytest
from playwright.sync_api import Page, sync_playwright

WITHIN_MS = 60_000


@dataclass
class Browser:
    """An open page. `complaints`: errors and warnings of its console; `outside`: requests to other hosts."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


def grave_violations(page):
    """The elements with which axe-core finds something serious, by its rule. The page must allow its script."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    found = page.evaluate("axe.run().then(found => found.violations)")
    return {
        each["id"]: [node["html"] for node in each["nodes"]]
        for each in found
        if each["impact"] in ("serious", "critical")
    }


def width_of(page):
    """The width that the page needs, in pixels."""
    return int(page.evaluate("document.documentElement.scrollWidth"))


def beyond(page, width):
    """The innermost elements that end beyond `width` pixels, as HTML."""
    wide = f"[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > {width})"
    return page.evaluate(f"{wide}.filter(e => !e.children.length).map(e => e.outerHTML.slice(0, 300)).slice(0, 5)")


@contextmanager
def browser(url, **options):
    """A page of `url`'s service. `options`: of Playwright's `new_context`. Skips the test if there is no browser."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=arguments)
        try:
            page = started.new_context(base_url=url, **options).new_page()
            page.set_default_timeout(WITHIN_MS)
            found = Browser(page)
            page.on("console", lambda said: said.type in ("error", "warning") and found.complaints.append(said.text))
            page.on("pageerror", lambda error: found.complaints.append(str(error)))
            page.on("request", lambda sent: sent.url.startswith((url, "data:")) or found.outside.append(sent.url))
            yield found
        finally:
            started.close()
