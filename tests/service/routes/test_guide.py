"""The docs as a site: it builds without warnings, loads nothing from other hosts, and the API serves all of it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from service import docs
from tests.browser import browser
from tests.service.routes.test_docs import Referred

ROOT = Path(__file__).parents[3]
PAGES = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make site` does. A wrong link is a warning, and a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture
def _served(site, monkeypatch):
    monkeypatch.setattr(docs, "GUIDE", site)
    docs.guide_files.cache_clear()
    yield
    docs.guide_files.cache_clear()


def test_every_page_of_the_docs_is_a_page_of_the_site(site):
    assert PAGES - {path.relative_to(site) for path in site.rglob("*.html")} == set()


def test_the_site_has_no_source_maps_and_no_other_languages_of_the_search(site):
    assert [path for path in site.rglob("*.*") if path.suffix == ".map" or "lunr" in path.parts] == []


def test_no_file_of_the_site_loads_another_host(site):
    for path in site.rglob("*.html"):
        page = Referred()
        page.feed(path.read_text())
        assert {url for url in page.urls if urlsplit(url).netloc} == set(), path
    for path in site.rglob("*.css"):
        assert not re.search(r"(@import|url\(\s*[\"']?(https?:|//))", path.read_text()), path


@pytest.mark.usefixtures("_served")
def test_the_api_serves_every_page_with_what_it_loads(http):
    assert http.get("/docs/guide", follow_redirects=True).url.path == "/docs/guide/"
    for path in ("", "tutorial.html", "dev/decisions/0001-redis-holds-the-truth.html"):
        answer = http.get(f"/docs/guide/{path}").raise_for_status()
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert http.get(answer.url, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304
        page = Referred()
        page.feed(answer.text)
        assert page.urls
        for url in {url for url in page.urls if not url.startswith("data:")}:
            assert http.get(urljoin(str(answer.url), url)).is_success, url
    assert http.get("/docs/guide/nothing.html").status_code == 404
    assert http.get("/docs/guide/..%2fguide.py").status_code == 404


def test_without_a_site_the_api_says_how_to_build_it(http, tmp_path, monkeypatch):
    monkeypatch.setattr(docs, "GUIDE", tmp_path)
    docs.guide_files.cache_clear()
    answer = http.get("/docs/guide/")
    assert (answer.status_code, answer.text) == (404, docs.GUIDE_ABSENT)


@pytest.mark.verify
@pytest.mark.usefixtures("_served")
def test_a_browser_shows_and_searches_the_site_without_errors(http):
    with browser(str(http.base_url)) as shown:
        shown.page.goto("/docs/guide/tutorial.html")
        shown.page.locator("article h1").wait_for()
        assert shown.page.locator("article img").first.evaluate("image => image.naturalWidth") > 0
        shown.page.locator("[data-md-component=search-query]").press_sequentially("baseline")
        shown.page.locator(".md-search-result__item").first.wait_for()
    assert shown.complaints == shown.outside == []
