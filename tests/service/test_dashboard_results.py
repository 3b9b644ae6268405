"""What the dashboard shows of results: their series, comparisons, advice, and files to send around."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from datetime import datetime
from html import unescape

import pytest
from markupsafe import Markup

from dyno.bench.devices.environment import hardware_id
from dyno.models.job import WorkerRef
from dyno.models.result import PartialMetrics, Roof
from dyno.store.leases import Leases
from dyno.store.placement import queues_served
from dyno.store.redis import Keys, sync_client
from service.dashboard.rendering import ago, half_width, percent
from service.dashboard.saved_files import PageTables
from tests.charts.pictures import a_run
from tests.comparisons import RATES, a_metric, of_metrics, times
from tests.pages import beside, posts_of, text_of
from tests.waiting import eventually

Finished = Callable[..., str]
InTurns = Callable[[list[float]], str]
FIRST, AGAIN = [100.0, 101.0, 99.0, 100.5], [100.5, 100.5, 99.5, 100.0]
OUTSIDE = re.compile(r"<script|<link|<form|<img(?! src=\"data:)|url\(|@import")


@pytest.fixture
def in_turns(http, settings, offered):
    """Make the done job of two specs, from the figures of the second one's runs."""
    with sync_client(settings) as client:
        leases = Leases(client, settings)

        def one(second):
            specs = [{"workload": "matmul", "params": {"n": 64, "repeats": each}, "device": "cpu"} for each in (10, 20)]
            made = http.post("/v1/comparisons", json={"specs": specs, "pairs": 4}).raise_for_status().json()
            claim = leases.claim(offered.full_id, queues_served(offered), WorkerRef(id="w", device="d", host="here"))
            assert claim is not None

            def arm(by_run, repeats):
                params = {"n": 64, "repeats": repeats}
                return of_metrics([a_metric(by_run=by_run)], params=params).model_copy(update={"job": claim.job_id})

            found = arm(FIRST, 10).model_copy(update={"arms": [arm(second, 20), arm(AGAIN, 10)]})
            assert leases.finish(claim, "succeed", result=found)
            return str(made["job"])

        yield one


def test_the_start_page_draws_the_series_of_each_result(http, finished):
    alone = finished(spec={"params": {"n": 70}})
    jobs = [finished(times(factor), spec={"params": {"n": 71}}) for factor in (1, 1.01, 0.99)]
    rows = http.get("/").text.split("<tr>")
    row_of = {job: next(row for row in rows if job in row) for job in (alone, *jobs)}
    assert "<svg" not in row_of[alone], "one result is no series"
    for job in jobs:
        assert "<title>3 results, 99 FLOP/s to 101 FLOP/s</title>" in row_of[job]
        assert row_of[job].count("<circle") == 1, "a dot for the row's own result"


def test_results_are_chosen_on_the_start_page_and_compared(http, finished):
    jobs = [finished(times(factor), spec={"params": {"n": 72}}) for factor in (1, 2)]
    page = http.get("/").text
    assert 'action="/compare"' in page
    assert all(f'type="checkbox" name="job" value="{job}"' in page for job in jobs)
    compared = http.get("/compare", params={"job": jobs})
    assert "2 times as fast" in text_of(compared)
    assert "FASTER" in text_of(compared)
    [medium] = re.findall(r'class="picture medium".*?</svg>', compared.text.partition("ratios")[2][1:])[-1:]
    assert medium.count("<title>run ") == 2 * len(RATES), "a dot for each run"


def test_fewer_than_two_results_lead_to_the_list_to_choose_from(http, finished):
    job = finished(spec={"params": {"n": 173}})
    for chosen, rest in (([], ""), ([job], f"&compare={job}")):
        answer = http.get("/compare", params={"job": chosen})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs?status=succeeded{rest}")
        assert "Choose" in text_of(http.get(answer.headers["location"]))


def test_the_page_of_two_specs_has_their_comparison(http, in_turns):
    job = in_turns(times(1.5, AGAIN))
    page = http.get(f"/jobs/{job}")
    made = http.get(f"/v1/comparisons/cmp_{job.removeprefix('job_')}").json()
    shown, ratio = text_of(page), made["results"][1]["ratio"]
    assert ratio["verdict"] == "FASTER"
    for figure in (ratio["value"], ratio["low"], ratio["high"]):
        assert f"{figure:.3g}" in shown
    assert "FASTER : better than the base" in shown
    assert "The control is repeats 10 once more" in shown
    assert "/params/repeats 10 20" in shown
    assert "<title>the ratios with their intervals, on a logarithmic axis</title>" in page.text
    assert text_of(http.get(f"/comparisons/{made['id']}")).count("FASTER : better than the base") == 1


def test_an_inconclusive_comparison_says_how_many_more_runs_would_tell(http, in_turns):
    job = in_turns([90.0, 113.0, 94.0, 109.0])
    made = http.get(f"/v1/comparisons/cmp_{job.removeprefix('job_')}").json()
    ratio = made["results"][1]["ratio"]
    assert ratio["verdict"] == "INCONCLUSIVE"
    shown = text_of(http.get(f"/jobs/{job}"))
    assert f"more runs are needed, about {ratio['more_runs']} of each" in shown
    assert f"a difference of {100 * ratio['smallest_effect']:.2g} %" in shown


def test_a_comparison_that_still_runs_leads_to_its_job(http, offered):
    specs = [{"workload": "matmul", "params": {"n": 64, "repeats": each}, "device": "cpu"} for each in (10, 20)]
    made = http.post("/v1/comparisons", json={"specs": specs, "pairs": 4}).json()
    page = http.get(f"/comparisons/{made['id']}")
    assert (page.status_code, page.headers["location"]) == (303, f"/jobs/{made['job']}")
    assert http.get(f"/jobs/{made['job']}").status_code == 200
    http.post(f"/v1/jobs/{made['job']}/cancel")
    assert http.get("/comparisons/cmp_nothing").status_code == 404


def test_pages_are_saved_as_one_file_that_loads_nothing(http, finished, in_turns, settings, offered):
    jobs = [finished(times(factor), spec={"params": {"n": 74}}) for factor in (1, 2)]
    stored = http.post("/v1/comparisons", json={"jobs": jobs}).json()["id"]
    sweep = a_sweep(http, settings, offered)
    compare = f"/compare?job={jobs[0]}&job={jobs[1]}"
    origin = str(http.base_url).rstrip("/")
    for path in (compare, f"/comparisons/{stored}", f"/jobs/{in_turns(AGAIN)}", f"/sweeps/{sweep}", "/history"):
        link = f"{path}{'&' if '?' in path else '?'}file=1"
        assert link.replace("&", "&amp;") in http.get(path).text, "each page leads to its file"
        file = http.get(link)
        assert file.status_code == 200
        assert re.fullmatch(r'attachment; filename="[\w.-]+\.html"', file.headers["content-disposition"])
        assert OUTSIDE.findall(file.text) == []
        assert "default-src &#39;none&#39;" in file.text or "default-src 'none'" in file.text
        assert "--accent" in file.text, "the style sheet"
        assert "<svg" in file.text
        assert f"Saved from {origin}{path} by Dyno" in text_of(file)


def a_sweep(http, settings, offered, by_run=(RATES, RATES), **more):
    """A done sweep of two points, n 66 and n 67, with the figures of their runs."""
    spec = {"workload": "matmul", "params": {"repeats": 10}, "device": "cpu"}
    made = (
        http.post("/v1/sweeps", json={"spec": spec, "grid": {"params.n": [66, 67]}, **more}).raise_for_status().json()
    )
    with sync_client(settings) as client:
        leases = Leases(client, settings)
        for _ in made["points"]:
            claim = leases.claim(offered.full_id, queues_served(offered), WorkerRef(id="w", device="d", host="here"))
            assert claim is not None
            n = http.get(f"/v1/jobs/{claim.job_id}").json()["spec"]["params"]["n"]
            found = of_metrics([a_metric(by_run=by_run[n - 66])]).model_copy(update={"job": claim.job_id})
            assert leases.finish(claim, "succeed", result=found)
    return str(made["id"])


def test_a_sweeps_page_says_what_it_concludes(http, settings, offered):
    sweep = a_sweep(http, settings, offered, ([90.0, 113.0, 94.0, 109.0], RATES), base={"params.n": 67})
    [ratio] = [each["ratio"] for each in http.get(f"/v1/sweeps/{sweep}").json()["points"] if each["ratio"]]
    assert ratio["verdict"] == "INCONCLUSIVE"
    assert f"n 66: about {ratio['more_runs']} more runs of each would decide" in text_of(http.get(f"/sweeps/{sweep}"))
    assert re.findall(r"<strong>(.*?)</strong> highest", http.get(f"/sweeps/{sweep}").text) == ["101.5 FLOP/s"]


def test_each_picture_is_a_file_of_its_own(http, finished):
    job = finished(spec={"params": {"n": 75}})
    links = re.findall(r'href="([^"]*picture=[^"]*)"', http.get(f"/jobs/{job}").text)
    assert [each.partition("picture=")[2] for each in links] == ["runs", "runs.png", "phases", "phases.png"]
    for link in links:
        file, kind = http.get(link), "png" if link.endswith(".png") else "svg"
        assert file.headers["content-type"] == ("image/png" if kind == "png" else "image/svg+xml")
        assert file.headers["content-disposition"].endswith(f'.{kind}"')
        assert file.content.startswith(b"\x89PNG" if kind == "png" else b"<svg xmlns=")
    assert http.get(f"/jobs/{job}?picture=nothing").headers["content-type"].startswith("text/html")


def test_each_table_of_each_page_is_a_file_too(http, finished, in_turns, settings, offered):
    runs = [a_run(), a_run(None)]
    roofs = [Roof(reason="not measured")]
    jobs = [finished(times(factor), spec={"params": {"n": 77}}, runs=runs, roofs=roofs) for factor in (1, 2)]
    a_sweep(http, settings, offered)
    http.put("/v1/baselines/tables", json={"job": jobs[0]}).raise_for_status()
    http.put("/v1/schedules/tables", json={"cron": "0 3 * * *", "spec": {"workload": "matmul", "device": "cpu"}})
    pages = ("/", "/jobs", f"/jobs/{jobs[0]}", f"/jobs/{in_turns(AGAIN)}", f"/compare?job={jobs[0]}&job={jobs[1]}")
    pages += (
        "/workloads",
        "/workloads/mnist_cnn",
        "/sweeps",
        "/schedules",
        "/history",
        "/fleet",
        f"/fleet/{offered.full_id}",
    )
    pages += ("/advice?workload=matmul&params.n=77",)
    for path in pages:
        page = http.get(path)
        tables = page.text.count("<table")
        assert tables, path
        links = [unescape(each) for each in re.findall(r'href="([^"]*table=[^"]*)"', page.text)]
        asked = [each.rpartition("table=")[2] for each in links]
        assert asked == [f"{n + 1}.{form}" for n in range(tables) for form in ("csv", "json", "md")], path
        for link, name in zip(links, asked, strict=True):
            file = http.get(link)
            assert file.status_code == 200
            assert file.headers["content-disposition"].endswith(f'-{name}"'), link
    http.delete("/v1/schedules/tables")
    http.delete("/v1/baselines/tables")


def test_a_table_of_a_page_has_its_words_and_no_buttons(http, finished):
    jobs = [finished(times(factor), spec={"params": {"n": 78, "repeats": 10 * factor}}) for factor in (1, 2)]
    compared = f"/compare?job={jobs[0]}&job={jobs[1]}"
    rows = list(csv.reader(http.get(f"{compared}&table=1.csv").text.splitlines()))
    assert rows[0][:3] == ["Result", "Device", "Value"]
    assert [row[0] for row in rows[1:]] == ["repeats 10", "repeats 20"]
    assert rows[2][2:6] == ["200 FLOP/s", "198 FLOP/s to 202 FLOP/s", "5", "indicative"], "without the sign"
    [row, *_] = http.get("/jobs?table=1.json").json()
    assert "Choose" not in row
    assert row["Workload"] == "matmul n = 78, repeats = 20"
    assert datetime.fromisoformat(row["When"]).tzinfo, "a time, not how long ago it was"
    lines = http.get(f"{compared}&table=2.md").text.splitlines()
    assert lines[0] == "| Field | repeats 10 | repeats 20 |"
    assert "| /params/repeats | 10 | 20 |" in lines
    for wrong in ("3.csv", "0.csv", "1.exe", "1", "x", "-1.csv"):
        assert http.get(f"{compared}&table={wrong}").headers["content-type"].startswith("text/html"), wrong


def test_cells_of_tables_do_not_run_in_spreadsheets_and_keep_their_columns():
    tables = PageTables(ago)
    for name, state in (("=1+1", Markup("a|b &amp; <b>c</b>")), ("second", "d")):
        tables.cell("Name", name)
        tables.cell("State", state, text="a|b &")
    assert tables.end() == 1
    csv_file, markdown = (tables.file(f"1.{form}", "page") for form in ("csv", "md"))
    assert csv_file is not None
    assert markdown is not None
    assert bytes(csv_file.body).decode() == "Name,State\r\n'=1+1,a|b &\r\nsecond,a|b &\r\n"
    assert "| =1+1 | a\\|b & |" in bytes(markdown.body).decode()


def test_a_jobs_page_has_each_run_with_its_clock_and_temperature(http, finished):
    job = finished([100.0, 200.0], runs=[a_run(), a_run(None)])
    shown = text_of(http.get(f"/jobs/{job}"))
    assert "1 100 FLOP/s 500 ms 20 3.55 GHz 61 °C enough samples" in shown
    assert "2 200 FLOP/s – 20 – – enough samples" in shown
    eventually(lambda: "idle 61 °C in its last result" in text_of(http.get("/")), 10, "the start page knows the device")
    finished()
    assert "°C" not in text_of(http.get("/")), "its last result has none"


def test_a_jobs_page_shows_where_earlier_results_of_its_series_lie(http, finished):
    jobs = [finished(times(factor), spec={"params": {"n": 174}}) for factor in (1, 1.1, 0.9)]
    finished(spec={"params": {"n": 175}})
    for earlier, job in enumerate(jobs):
        page = http.get(f"/jobs/{job}")
        assert page.text.count("<title>an earlier result") == 2 * earlier, "at two of the widths"
        assert (f"{earlier} earlier result" in text_of(page)) == (earlier > 0)


def test_a_jobs_page_says_why_its_result_is_not_trusted_without_a_warning(http, finished):
    few = finished([100.0, 101.0], runs=[a_run()] * 2, verdict="indicative", warnings=[], unchecked=[])
    assert "It rests on 2 runs; a trusted result has 5 or more." in text_of(http.get(f"/jobs/{few}"))
    why = {"unchecked_reasons": {"THROTTLED": "no clock"}}
    known = {"runs": [a_run()] * 5, "verdict": "indicative", "warnings": [], "details": why}
    shown = text_of(http.get(f"/jobs/{finished([100.0] * 5, unchecked=['THROTTLED', 'UNIT_MISMATCH'], **known)}"))
    assert "Not checked: THROTTLED (no clock), UNIT_MISMATCH ." in shown
    assert "It rests on" not in shown


def test_a_jobs_commands_have_the_params_that_differ_from_the_defaults(http, finished):
    shown = text_of(http.get(f"/jobs/{finished(spec={'params': {'n': 176}})}"))
    assert '"params": {"n": 176}' in shown
    assert "'params': {'n': 176}" in shown


def test_shares_are_written_out():
    assert [percent(share) for share in (0.814, 0.0994, 0.0012, 1.0)] == ["81 %", "9.9 %", "0.12 %", "100 %"]
    wide = a_metric().model_copy(update={"value": 10.0, "low": -1.0, "high": 21.0})
    assert half_width(wide) == "±110 %"


def test_a_jobs_page_has_the_text_that_the_model_wrote(http, finished):
    page = http.get(f"/jobs/{finished(details={'generated': 'ROMEO: <b>what</b>', 'rnn_kernel': 'fused'})}")
    assert "Text that it wrote ROMEO: <b>what</b>" in text_of(page)
    assert '"rnn_kernel": "fused"' in text_of(page)
    assert "<b>what" not in page.text


def test_a_result_is_compared_with_others_that_its_page_leads_to(http, finished):
    job, other = (finished(spec={"params": {"n": 79}, "labels": {"with": "yes"}}) for _ in range(2))
    [link] = re.findall(r'href="([^"]*)">Compare with', http.get(f"/jobs/{job}").text)
    page = http.get(unescape(link))
    assert f"Choose the results to compare with {job}" in text_of(page)
    assert f'<input type="hidden" name="job" value="{job}">' in page.text
    boxes = re.findall(r'type="checkbox" name="job" value="([^"]*)"', page.text)
    assert other in boxes
    assert job not in boxes, "a result isn't compared with itself"
    assert f'name="compare" value="{job}"' in page.text, "the filters keep it"
    assert "compare=" not in page.text.partition("Jobs as JSON")[0].rpartition("<a href=")[2]


def test_a_result_is_saved_as_a_baseline_that_the_history_shows(http, finished):
    jobs = [finished(times(factor), spec={"params": {"n": 80}, "labels": {"base": "yes"}}) for factor in (1, 1.01)]
    assert f"/jobs/{jobs[0]}/baseline" in posts_of(http.get(f"/jobs/{jobs[0]}"))
    saved = http.post(f"/jobs/{jobs[0]}/baseline", data={"name": "main"})
    assert (saved.status_code, saved.headers["location"]) == (303, "/history#baselines")
    assert http.get("/v1/baselines/main").json()["job"] == jobs[0]
    http.put("/v1/baselines/least", json={"metric": "throughput", "at_least": 90}).raise_for_status()
    page = http.get("/history?label=base")
    assert "least throughput at least 90" in text_of(page)
    assert "main throughput 100 FLOP/s 99.02 FLOP/s to 101 FLOP/s 5 %" in text_of(page)
    assert page.text.count("<title>baseline main</title>") == 2, "at two of the widths"
    for name in ("", "a b"):
        refused = http.post(f"/jobs/{jobs[0]}/baseline", data={"name": name})
        assert (refused.status_code, "baseline" in text_of(refused)) == (422, True)
    for name in ("main", "least"):
        http.delete(f"/v1/baselines/{name}")
    assert "Baselines" not in text_of(http.get("/history?label=base"))


def test_the_page_of_a_running_job_has_the_runs_so_far(http, claimed, client, settings):
    leases, claim = claimed()
    path = f"/jobs/{claim.job_id}"
    assert "So far" not in text_of(http.get(path))
    for count in (1, 2):
        figures = PartialMetrics(run=count, runs=5, metrics=[a_metric(by_run=RATES[:count])])
        leases.heartbeat(claim, None, so_far=figures)
    client.hset(Keys(settings.namespace).partial(claim.job_id), "of another version", "{}")
    page = http.get(path)
    assert "So far, after 2 runs: 100.5 FLOP/s throughput" in text_of(page)
    assert page.text.count("<title>run 2: ") == 2, "at two of the widths"
    assert http.get(f"{path}?picture=runs").headers["content-type"] == "image/svg+xml"
    assert "data-figures" in page.text


def test_a_field_with_an_error_is_not_folded_away(http, offered):
    folded = http.get("/workloads/mnist_cnn").text
    assert "<details><summary>" in folded.partition("<form method")[2]
    hidden = re.findall(r'name="(params\.[a-z_]+)"', folded.partition("<details>")[2])[-1]
    wrong = http.post("/workloads/mnist_cnn", data={"device": "cpu", hidden: "-1e9"})
    assert wrong.status_code == 422
    assert "<details open><summary>" in wrong.text


def test_advice_names_the_best_device_and_the_result_it_rests_on(http, finished, offered):
    known = {"hardware_id": hardware_id(offered), "device": offered.model_dump(mode="json")}
    job = finished(spec={"params": {"n": 73}}, **known)
    page = http.get("/advice", params={"workload": "matmul", "params.n": "73"})
    assert page.status_code == 200
    shown = text_of(page)
    assert "Most per second cpu:0-1@here" in shown
    assert "per joule" not in shown, "no result has energy"
    assert f'href="/jobs/{job}"' in page.text
    assert "<title>throughput per second</title>" in page.text
    assert beside(page, "params.n") == ("73", "")


def test_advice_says_where_a_result_is_missing(http, offered):
    shown = text_of(http.get("/advice", params={"workload": "matmul", "params.n": "7"}))
    assert "No live device has a result" in shown
    assert "dyno run matmul --device cpu:0-1@here --param n=7" in shown


def test_a_wrong_question_for_advice_is_shown_again(http):
    page = http.get("/advice", params={"workload": "matmul", "params.n": "0"})
    assert page.status_code == 422
    kept, wrong = beside(page, "params.n")
    assert kept == "0"
    assert wrong
    assert http.get("/advice").status_code == 200
    assert http.get("/advice", params={"workload": "device_info"}).status_code == 422
    assert http.get("/advice", params={"workload": "nothing"}).status_code == 404


def test_the_guide_is_linked_where_it_is(http, monkeypatch, tmp_path):
    monkeypatch.setattr("service.docs.GUIDE", tmp_path)
    assert "/docs/guide/" not in http.get("/jobs").text
    (tmp_path / "index.html").write_text("<h1>Guide</h1>")
    assert 'href="/docs/guide/"' in http.get("/jobs").text


def test_a_jobs_page_leads_to_the_form_with_its_spec(http, finished):
    job = finished(spec={"params": {"n": 76, "dtype": "bfloat16"}, "device": "cpu"})
    [link] = re.findall(r'href="([^"]*)">Change and run', http.get(f"/jobs/{job}").text)
    form = http.get(link.replace("&amp;", "&"))
    assert beside(form, "params.n") == ("76", "")
    for chosen in ("bfloat16", "cpu"):
        assert f"<option selected>{chosen}</option>" in form.text
