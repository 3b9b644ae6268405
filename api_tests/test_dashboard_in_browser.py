"""The dashboard in a real browser: what moves, what a person does with it, and who can read it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import httpx
import pytest

from tests.browser import Browser, browser
from tests.waiting import eventually

pytestmark = pytest.mark.verify  # a browser takes seconds of both cores to start


@pytest.fixture
def shown(url: str) -> Iterator[Browser]:
    with browser(url) as shown:
        yield shown
    assert shown.complaints == shown.outside == []


def test_a_job_is_followed_from_its_form_to_its_result_without_loading_a_page_again(
    shown: Browser, api: Any, http: httpx.Client
) -> None:
    page = shown.page
    page.goto("/workloads")
    page.get_by_role("link", name="matmul", exact=True).click()
    page.locator("[name='params.n']").fill("256")
    page.locator("[name='measure.processes']").fill("3")
    page.locator("[name='measure.max_s']").fill("2")
    page.locator(".estimate:has-text('about')").wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/jobs/job_*")
    page.evaluate("window.same = true")
    eventually(lambda: page.evaluate("document.querySelector('progress')?.value > 0"), 60, "progress")
    first = page.locator("progress").evaluate("bar => bar.value")
    further = f"!document.querySelector('progress') || document.querySelector('progress').value > {first}"
    eventually(lambda: page.evaluate(further), 60, "further progress")
    page.locator(".answer .verdict").wait_for()
    assert page.evaluate("window.same"), "the page was loaded again"
    result = http.get(f"/v1{page.evaluate('location.pathname')}/result").json()
    assert page.locator("svg .dot:not(.small)").count() == len(result["runs"]) == 3
    assert result["verdict"] in page.locator(".answer .verdict").inner_text()


def test_two_results_are_chosen_and_compared(shown: Browser, api: Any) -> None:
    jobs = [api.finished(api.submit(params={"n": n}, labels={"page": "compare"}))["id"] for n in (64, 96)]
    shown.page.goto("/jobs?label=page%3Dcompare")
    for job in jobs:
        shown.page.locator(f'input[value="{job}"]').check()
    shown.page.get_by_role("button", name="Compare").click()
    shown.page.get_by_text("times as fast").first.wait_for()
    assert shown.page.locator("tbody tr").count() >= 2


def test_a_sweep_is_run_and_a_job_canceled(shown: Browser, api: Any) -> None:
    page = shown.page
    page.goto("/sweeps")
    page.locator("[name=workload]").select_option("device_info")
    page.locator("[name='measure.processes']").fill("1")
    page.locator("[name=axis1]").fill("framework")
    page.locator("[name=values1]").fill("tensorflow")
    page.get_by_role("button", name="Run the sweep").click()
    page.get_by_text("1 of 1 results").wait_for()
    job = api.submit(params={"n": 256}, measure={"processes": 1, "min_s": 55, "max_s": 60})
    page.goto(f"/jobs/{job['id']}")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Run again").wait_for()
    assert api.finished(job)["status"] == "canceled"


def test_the_keyboard_moves_in_lists_and_reaches_the_filters(shown: Browser, api: Any) -> None:
    api.finished(api.submit())
    shown.page.goto("/workloads")
    shown.page.keyboard.press("j")
    shown.page.keyboard.press("j")
    assert shown.page.evaluate("document.activeElement.textContent") == "device_info"
    shown.page.keyboard.press("k")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_url("**/workloads/cifar10_cnn")
    shown.page.goto("/jobs")
    shown.page.keyboard.press("/")
    assert shown.page.evaluate("document.activeElement.name") == "workload"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(url: str, api: Any, scheme: str) -> None:
    done = api.finished(api.submit())
    axe = (files("axe_playwright_python") / "axe.min.js").read_text()
    pages = ("/", "/jobs", f"/jobs/{done['id']}", "/workloads/mnist_cnn", "/sweeps", "/history", "/fleet", "/login")
    with browser(url, color_scheme=scheme, bypass_csp=True) as shown:
        for path in pages:
            shown.page.goto(path)
            shown.page.evaluate(axe)
            found = shown.page.evaluate("axe.run().then(found => found.violations)")
            grave = {
                each["id"]: [node["html"] for node in each["nodes"]]
                for each in found
                if each["impact"] in ("serious", "critical")
            }
            assert grave == {}, path


def test_a_phone_needs_no_sideways_scrolling(url: str, api: Any) -> None:
    done = api.finished(api.submit())
    with browser(url, viewport={"width": 375, "height": 800}) as shown:
        for path in ("/", "/jobs", f"/jobs/{done['id']}", "/workloads/mnist_cnn", "/sweeps", "/history", "/fleet"):
            shown.page.goto(path)
            wide = shown.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 375, (path, wide)


def test_the_same_facts_without_javascript(url: str, api: Any) -> None:
    done = api.finished(api.submit())
    told = []
    for on in (True, False):
        with browser(url, java_script_enabled=on) as shown:
            shown.page.goto(f"/jobs/{done['id']}")
            told.append(shown.page.locator("main").inner_text().replace("ago", ""))
    with_scripts, without = (" ".join(each.split()) for each in told)
    assert with_scripts[-500:] == without[-500:]
    assert len(with_scripts) == pytest.approx(len(without), abs=10)
