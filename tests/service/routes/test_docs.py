"""The page of the API: the service has all its files, and a browser shows it without other servers."""

import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from service import docs
from service.docs import PAGE_POLICY, assets
from service.openapi import TAGS
from tests.browser import browser


class Referred(HTMLParser):
    """Collects the files that a page loads."""

    def __init__(self):
        super().__init__()
        self.urls = []
        self.inline = False

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        url = known.get("src") or (known.get("href") if tag == "link" else None)
        self.urls += [url] if url else []
        self.inline |= tag == "style" or (tag == "script" and not url) or "style" in known
        self.inline |= any(name.startswith("on") for name in known)


@pytest.fixture(scope="module")
def page(http):
    answer = http.get("/docs").raise_for_status()
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == PAGE_POLICY
    assert answer.headers["x-frame-options"] == "DENY"
    page = Referred()
    page.feed(answer.text)
    return page


def test_the_page_loads_only_local_files_and_has_no_inline_script(http, page):
    loaded = [url for url in page.urls if url != "data:,"]
    assert {url.removeprefix("docs/") for url in loaded} == assets().keys()
    assert not page.inline
    for url in loaded:
        answer = http.get(f"/{url}").raise_for_status()
        assert answer.headers["content-type"].startswith("text/css" if url.endswith("css") else "text/javascript")
        assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        for tag in (answer.headers["etag"], f'"other", W/{answer.headers["etag"]}', "*"):
            known = http.get(f"/{url}", headers={"If-None-Match": tag})
            assert (known.status_code, known.content) == (304, b"")
        assert http.get(f"/{url}", headers={"If-None-Match": answer.headers["etag"].strip('"')}).status_code == 200
        if url.endswith("css"):
            assert not re.search(r"(@import|url\(\s*[\"']?(https?:|//))", answer.text)


SOURCE = Path(docs.__file__).parent / "swagger-ui" / "SOURCE.md"


def test_swagger_ui_is_the_published_one():
    listed = dict(re.findall(r"^\| `(.+?)` \| [\d,]+ \| `([0-9a-f]{64})` \|$", SOURCE.read_text(), re.MULTILINE))
    files = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in SOURCE.parent.iterdir()}
    assert listed == {name: digest for name, digest in files.items() if name != SOURCE.name}
    assert {"swagger-ui-bundle.js", "swagger-ui.css", "LICENSE", "NOTICE"} <= listed.keys()


def test_the_policy_restricts_the_page_to_its_origin():
    sources = {word for part in PAGE_POLICY.split(";") for word in part.split()[1:]}
    assert sources == {"'self'", "'none'", "'unsafe-inline'", "data:"}
    assert "script-src 'self';" in PAGE_POLICY


@pytest.mark.verify
def test_a_browser_shows_every_tag_without_errors(http):
    with browser(str(http.base_url)) as shown:
        shown.page.goto("/docs")
        for tag in TAGS:
            shown.page.locator(f'[data-tag="{tag}"]').first.wait_for()
        assert shown.page.locator('[data-path="/v1/jobs/{job_id}/cancel"]').count() == 1
        assert shown.page.locator("#ask").is_hidden()
    assert shown.complaints == shown.outside == []
