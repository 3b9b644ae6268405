"""The dashboard in a real browser: what moves, what a person does with it, and who can read it."""

import io
import re
from pathlib import Path

import pytest
from PIL import Image

from tests.browser import beyond, browser, grave_violations, width_of
from tests.waiting import eventually

pytestmark = pytest.mark.verify  # a browser takes seconds of both cores to start


@pytest.fixture
def shown(url):
    with browser(url) as shown:
        yield shown
    assert shown.complaints == shown.outside == []


def test_a_job_is_followed_from_its_form_to_its_result_without_loading_a_page_again(shown, api, http):
    page = shown.page
    page.goto("/workloads")
    page.get_by_role("link", name="matmul", exact=True).click()
    page.locator("[name='params.n']").fill("256")
    page.locator("[name='measure.budget_s']").fill("3")
    page.locator(".estimate:has-text('about')").wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/jobs/job_*")
    page.evaluate("window.same = true")
    eventually(lambda: page.evaluate("document.querySelector('progress')?.value > 0"), 60, "progress")
    first = page.locator("progress").evaluate("bar => bar.value")
    page.get_by_text(re.compile(r"So far, after \d+ run")).wait_for()
    further = f"!document.querySelector('progress') || document.querySelector('progress').value > {first}"
    eventually(lambda: page.evaluate(further), 60, "further progress")
    page.locator(".answer .verdict").wait_for()
    assert page.evaluate("window.same"), "the page was loaded again"
    result = http.get(f"/v1{page.evaluate('location.pathname')}/result").json()
    dots = page.locator("svg.medium circle > title").all_text_contents()
    assert sum(title.startswith("run ") for title in dots) == len(result["runs"]) >= 5
    assert result["verdict"] in page.locator(".answer .verdict").inner_text()


def test_a_picture_downloads_as_png(shown, api):
    job = api.finished(api.submit())["id"]
    shown.page.goto(f"/jobs/{job}")
    with shown.page.expect_download() as saving:
        shown.page.get_by_role("link", name="phases as PNG").click()
    assert saving.value.suggested_filename == f"{job}-phases.png"
    drawn = Image.open(io.BytesIO(Path(saving.value.path()).read_bytes())).convert("RGB")
    assert drawn.width == 2 * 704
    assert (0, 114, 178) in {colour for _, colour in drawn.getcolors(100_000)}, "with its colours"


TRAINED = {"processes": 1, "min_samples": 3, "min_s": 0, "max_s": 1}
TRAININGS = {
    "mnist_cnn": {"epochs": 1, "batch_size": 32, "train_samples": 128, "test_samples": 64, "jit_compile": False},
    "weather_gru": {"epochs": 1, "batch_size": 8, "steps_per_epoch": 2, "window": 60, "units": 8, "jit_compile": False},
}


@pytest.mark.parametrize("workload", TRAININGS)
def test_the_wrong_digits_and_the_forecasts_are_shown_and_open(shown, api, workload):
    params = TRAININGS[workload] | {"data": "sample"}
    job = api.finished(api.submit({"workload": workload, "params": params, "measure": TRAINED}))
    assert job["status"] == "succeeded", job["failure"]
    page = shown.page
    page.goto(f"/jobs/{job['id']}")
    pictures = page.locator("figure img").all()
    assert pictures
    for each in pictures:
        each.scroll_into_view_if_needed()
        eventually(lambda each=each: each.evaluate("image => image.naturalWidth > 50"), 30, "the picture is loaded")
        link = page.get_by_role("link", name=str(each.get_attribute("alt")), exact=True).first
        assert page.request.get(str(link.get_attribute("href"))).headers["content-type"] == "image/png"


def test_two_results_are_chosen_and_compared(shown, api):
    jobs = [api.finished(api.submit(params={"n": n}, labels={"page": "compare"}))["id"] for n in (64, 96)]
    for path in ("/", "/jobs?label=page%3Dcompare"):
        shown.page.goto(path)
        for job in jobs:
            shown.page.locator(f'input[value="{job}"]').check()
        shown.page.get_by_role("button", name="Compare selected").click()
        shown.page.get_by_text("times as fast").first.wait_for()
    assert shown.page.locator("tbody tr").count() >= 2


def test_chosen_results_stay_chosen_when_the_start_page_shows_news(shown, api):
    job = api.finished(api.submit())["id"]
    shown.page.goto("/")
    shown.page.evaluate("window.same = true")
    box = shown.page.locator(f'input[value="{job}"]')
    box.check()
    other = api.finished(api.submit())["id"]
    shown.page.locator(f'input[value="{other}"]').wait_for()
    assert shown.page.evaluate("window.same"), "the page was loaded again"
    assert box.is_checked()


def test_a_sweep_is_run_and_a_job_canceled(shown, api):
    page = shown.page
    page.goto("/")
    page.get_by_role("link", name="Sweep", exact=True).click()
    page.locator("a[href='/workloads/matmul/sweep']").click()
    page.locator("[name='params.n']").fill("64, 0")
    page.locator("[name='measure.budget_s']").fill("1")
    page.get_by_role("button", name="Run the sweep").click()
    page.locator("label:has([name='params.n']) .wrong").wait_for()
    assert page.locator("[name='params.n']").input_value() == "64, 0"
    shown.complaints.clear()  # the browser logs the 422
    page.locator("[name='params.n']").fill("64, 65")
    page.get_by_role("button", name="Run the sweep").click()
    page.get_by_text("2 of 2 results").wait_for()
    with page.expect_download() as saving:
        page.get_by_role("link", name="Save this page").click()
    assert saving.value.suggested_filename.endswith(".html")
    job = api.submit(params={"n": 256}, measure={"processes": 1, "min_s": 55, "max_s": 60})
    page.goto(f"/jobs/{job['id']}")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Run again").wait_for()
    assert api.finished(job)["status"] == "canceled"


def test_the_keyboard_moves_in_lists_and_reaches_the_filters(shown, api):
    api.finished(api.submit())
    first, second, *_ = (each["name"] for each in api.http.get("/v1/workloads").raise_for_status().json()["data"])
    shown.page.goto("/workloads")
    shown.page.keyboard.press("j")
    shown.page.keyboard.press("j")
    assert shown.page.evaluate("document.activeElement.textContent") == second
    shown.page.keyboard.press("k")
    shown.page.keyboard.press("Enter")
    shown.page.wait_for_url(f"**/workloads/{first}")
    shown.page.goto("/")
    shown.page.keyboard.press("/")
    shown.page.wait_for_url("**/jobs#search")
    eventually(lambda: shown.page.evaluate("document.activeElement.name") == "workload", 10, "the filter has the focus")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(url, api, scheme):
    done = api.finished(api.submit())
    other = api.finished(api.submit())["id"]
    of_forms = ("/workloads/mnist_cnn", "/workloads/mnist_cnn/sweep", "/workloads/matmul/schedule", "/login")
    of_results = (f"/jobs/{done['id']}", f"/compare?job={done['id']}&job={other}", "/advice?workload=matmul")
    of_lists = ("/jobs", f"/jobs?compare={other}", "/workloads", "/sweeps", "/schedules", "/history", "/fleet")
    missing = "/jobs/job_01M80PT6VM78YWA14Q3XXHDWDJ"
    pages = ("/", missing, *of_lists, *of_results, *of_forms)
    with browser(url, color_scheme=scheme, bypass_csp=True) as shown:
        for path in pages:
            shown.page.goto(path)
            assert grave_violations(shown.page) == {}, path


@pytest.mark.parametrize("width", [375, 768])
def test_small_screens_need_no_sideways_scrolling(url, api, width):
    done, same = (api.finished(api.submit()) for _ in range(2))
    api.finished(api.submit(params={"sizes": [*range(8, 24)], "repeats": width}))  # measured once, with a long value
    with browser(url, viewport={"width": width, "height": 800}) as shown:
        for path in (
            *("/", "/jobs", f"/jobs/{done['id']}", "/workloads/mnist_cnn", "/sweeps", "/history", "/fleet"),
            *("/schedules", "/advice?workload=matmul&params.n=64", "/workloads/mnist_cnn/sweep"),
            *("/workloads", f"/jobs?compare={same['id']}", f"/compare?job={done['id']}&job={same['id']}"),
        ):
            shown.page.goto(path)
            assert width_of(shown.page) <= width, (path, beyond(shown.page, width))


def test_the_same_facts_without_javascript(url, api):
    done = api.finished(api.submit())
    told = []
    for on in (True, False):
        with browser(url, java_script_enabled=on) as shown:
            shown.page.goto(f"/jobs/{done['id']}")
            told.append(shown.page.locator("main").inner_text().replace("ago", ""))
    with_scripts, without = (" ".join(each.split()) for each in told)
    assert with_scripts[-500:] == without[-500:]
    assert len(with_scripts) == pytest.approx(len(without), abs=10)
