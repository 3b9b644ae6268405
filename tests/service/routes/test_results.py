"""Metrics of many jobs as one flat table."""

import csv
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

from dyno import tables
from dyno.bench.measure.warning_codes import CODES
from dyno.bench.measure.warnings import warning
from dyno.client import Client
from dyno.models.job import Job
from dyno.models.result import Precision, ResultSummary, ResultWarning, Verdict
from dyno.models.spec import InterleavedSpec
from dyno.store.redis import Keys
from dyno.tables import metric_rows as rows_of
from service.results import routes as results
from tests.comparisons import RATES, a_metric


def rows(http, **filters):
    return http.get("/v1/results", params=filters).raise_for_status().json()


def labelled(name, **labels):
    return {"labels": {"test": name} | labels}


def test_a_row_has_metric_device_and_params(http, finished):
    job = http.get(f"/v1/jobs/{finished(spec=labelled('row', commit='abc'))}").json()
    (row,) = rows(http, label="test=row")
    metric = http.get(job["urls"]["result"]).json()["metrics"][0]
    assert {name: row[name] for name in ("unit", "value", "low", "high", "better")}.items() <= metric.items()
    assert metric["repeat"] is None
    assert (row["repeat_low"], row["repeat_high"]) == (None, None)
    assert (row["job"], row["metric"], row["workload"], row["framework"]) == (
        job["id"],
        "throughput",
        "matmul",
        "tensorflow",
    )
    assert (row["device"], row["arm"]) == ("cpu:0-1@here", None)
    assert (row["time"], row["finished_at"]) == (job["created_at"], job["finished_at"])
    assert (row["label.test"], row["label.commit"], row["param.n"], row["param.sizes"]) == ("row", "abc", 64, None)
    assert all(not isinstance(value, list | dict) for value in row.values())


def test_jobs_that_have_no_result_have_no_row(http, submitted, finished, client, settings):
    expired, broken = (finished(spec=labelled("none")) for _ in range(2))
    submitted(**labelled("none"))
    client.delete(Keys(settings.namespace).result(expired))
    client.set(Keys(settings.namespace).result(broken), "{}")
    assert rows(http, label="test=none") == []


def test_every_filter_narrows_the_rows(http, finished):
    jobs = [finished(spec=labelled("filter")) for _ in range(3)]
    times = [http.get(f"/v1/jobs/{job}").json()["created_at"] for job in jobs]

    def found(**filters):
        return [row["job"] for row in rows(http, label="test=filter", **filters)]

    assert found() == jobs[::-1]
    assert found(**{"from": times[0]}) == [job for job, time in zip(jobs, times, strict=True) if time > times[0]][::-1]
    assert found(to=times[2]) == [job for job, time in zip(jobs, times, strict=True) if time < times[2]][::-1]
    assert datetime.fromisoformat(times[0])
    assert found(metric="throughput", workload="matmul", device="cpu") == jobs[::-1]
    assert found(metric="loss") == found(workload="mnist_cnn") == found(device="gpu") == []


def test_pages_follow_their_links_and_each_is_an_array(http, finished):
    jobs = [finished(spec=labelled("pages")) for _ in range(5)]
    seen = []
    answer = http.get("/v1/results", params={"label": "test=pages", "limit": 2})
    while True:
        assert isinstance(answer.json(), list)
        seen += [row["job"] for row in answer.json()]
        if "next" not in answer.links:
            break
        answer = http.get(answer.links["next"]["url"])
    assert seen == jobs[::-1]


def test_both_variants_of_a_job_have_rows(http, submitted):
    job = Job.model_validate(http.get(f"/v1/jobs/{submitted()}").json())
    second = job.spec.model_copy(update={"params": {"n": 128, "sizes": [1, 2]}})
    spec = InterleavedSpec(**dict(job.spec), against=second, pairs=2, control=True, metric="throughput")
    arm = ResultSummary(verdict=Verdict.INDICATIVE, metrics=[a_metric()])
    found = [*rows_of(job.model_copy(update={"spec": spec}), arm.model_copy(update={"arms": [arm, arm]}))]
    assert [(row["arm"], row["param.n"]) for row in found] == [("first", 64), ("second", 128), ("control", 64)]
    assert found[1]["param.sizes"] == "[1, 2]"


def test_a_row_has_the_params_that_ran(http, submitted):
    job = Job.model_validate(http.get(f"/v1/jobs/{submitted()}").json())
    summary = ResultSummary(verdict=Verdict.INDICATIVE, metrics=[a_metric()], params={"n": 32})
    (row,) = rows_of(job, summary)
    assert row["precision"] is None
    assert (job.spec.params["n"], row["param.n"], row["param.sizes"]) == (64, 32, None)


@pytest.mark.parametrize(
    ("observed", "shown"),
    [("float32", "float32"), ("tf32", "float32 (tf32)"), (None, "float32 (not observed)")],
)
def test_a_row_has_the_precision_that_ran(http, submitted, observed, shown):
    job = Job.model_validate(http.get(f"/v1/jobs/{submitted()}").json())
    precision = Precision(requested="float32", observed=observed)
    summary = ResultSummary(verdict=Verdict.INDICATIVE, metrics=[a_metric()], precision=precision)
    assert [row["precision"] for row in rows_of(job, summary)] == [shown]


def test_a_row_has_the_codes_of_the_warnings_so_that_a_chart_can_filter(http, finished):
    older = ResultWarning(code="NOISY", severity="B", message="A code that this version no longer has")
    finished(spec=labelled("codes"), warnings=[warning("CLOCK_DRIFT"), older], verdict=Verdict.INDICATIVE)
    finished(spec=labelled("codes"), verdict=Verdict.TRUSTED)
    clean, drifted = rows(http, label="test=codes")
    assert (clean["verdict"], clean["warnings"]) == ("trusted", "")
    assert (drifted["verdict"], drifted["warnings"]) == ("indicative", "CLOCK_DRIFT NOISY")
    table = http.get("/v1/results", params={"label": "test=codes", "format": "csv"}).text
    assert [row["warnings"] for row in csv.DictReader(io.StringIO(table))] == ["", "CLOCK_DRIFT NOISY"]


def test_every_warning_code_is_explained(http):
    listed = http.get("/v1/results/warnings").raise_for_status().json()["data"]
    assert [entry["code"] for entry in listed] == list(CODES)
    assert not [entry["code"] for entry in listed if not entry["means"] or not entry["advice"] or "{" in entry["means"]]
    assert {"MARGIN_FINE", "BATCH_SMALL"} <= {entry["code"] for entry in listed if entry["at_submit"]}
    with Client(str(http.base_url)) as client:
        assert [entry.severity for entry in client.warning_codes()] == [row.severity for row in CODES.values()]


@pytest.mark.parametrize(
    "wrong", [{"limit": 0}, {"limit": 201}, {"from": "soon"}, {"format": "xml"}, {"since": 1}, {"cursor": "x"}]
)
def test_a_wrong_filter_is_named(http, wrong):
    answer = http.get("/v1/results", params=wrong)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert [error["pointer"] for error in answer.json()["errors"]] == [f"/query/{name}" for name in wrong]


def test_csv_is_the_same_table_without_formulas(http, finished):
    hostile = '=HYPERLINK("http://x")\r\n'
    finished(spec=labelled("csv", **{"=note": hostile, "change": "-5"}))
    finished([2 * rate for rate in RATES], spec=labelled("csv"))
    answer = http.get("/v1/results", params={"label": "test=csv", "format": "csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="results.csv"'
    table = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    plain = rows(http, label="test=csv")
    assert [float(row["value"]) for row in table] == [row["value"] for row in plain]
    assert [row["label.=note"] for row in table] == ["", f"'{hostile}"]
    assert [row["label.change"] for row in table] == ["", "-5"]
    assert not any(cell.startswith(("=", "@")) for row in table for cell in row.values())
    assert answer.text.count("\r\n") == 1 + 2 + 1  # one of them is inside the note


def test_text_that_begins_a_formula_is_quoted(http, finished):
    formulas = {f"U+{ord(first):04X}": f"{first}1+1" for first in "=+-@\t\r\n\0\uff1d\uff0b\uff0d\uff20"}
    finished(spec=labelled("formulas", **formulas, none="1+1", number="-1e3"))
    answer = http.get("/v1/results", params={"label": "test=formulas", "format": "csv"})
    [row] = csv.DictReader(io.StringIO(answer.text, newline=""))
    assert {name: row[f"label.{name}"] for name in formulas} == {name: f"'{text}" for name, text in formulas.items()}
    assert (row["label.none"], row["label.number"]) == ("1+1", "-1e3")


def test_other_requests_are_answered_while_a_table_is_made(http, finished, monkeypatch):
    finished(spec=labelled("beside"))
    begun, go_on, make = threading.Event(), threading.Event(), tables.csv_text

    def held(*args):
        begun.set()
        assert go_on.wait(60)
        return make(*args)

    monkeypatch.setattr(tables, "csv_text", held)
    with ThreadPoolExecutor(1) as pool:
        table = pool.submit(http.get, "/v1/results", params={"label": "test=beside", "format": "csv"}, timeout=120)
        try:
            assert begun.wait(60)
            assert http.get("/livez", timeout=30).is_success
            assert not table.done()
        finally:
            go_on.set()
        assert len(list(csv.DictReader(io.StringIO(table.result(60).text)))) == 1


@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_table_ends_before_it_is_too_large_and_the_next_page_goes_on(http, finished, monkeypatch, format):
    jobs = [finished(spec=labelled(f"full-{format}", **{f"only-{number}": "x" * 100})) for number in range(7)]
    monkeypatch.setattr(results, "TABLE_CHARACTERS", 1800)
    answer = http.get("/v1/results", params={"label": f"test=full-{format}", "limit": 5, "format": format})
    pages = [answer]
    while "next" in answer.links:
        pages.append(answer := http.get(answer.links["next"]["url"]))
    assert len(pages) > 2, "more than the limit makes"
    read = [page.json() if format == "json" else list(csv.DictReader(io.StringIO(page.text))) for page in pages]
    assert [row["job"] for page in read for row in page] == jobs[::-1]
    assert max(map(len, read)) > 1
    assert all(len(page.text) < 2 * 1800 for page in pages)
