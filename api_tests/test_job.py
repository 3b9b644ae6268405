"""A job as clients see it: submit, poll, result."""

import csv
import io
import re
import statistics
from datetime import datetime

import pytest

UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@pytest.fixture(scope="module")
def finished(api):
    """One finished tiny job, shared by tests that only read it."""
    return api.finished(api.submit(labels={"commit": "abc"}))


@pytest.fixture(scope="module")
def result(api, finished):
    return api.http.get(finished["urls"]["result"]).raise_for_status().json()


def test_a_submit_is_accepted_with_the_whole_job(api, tiny, documented):
    answer = api.http.post("/v1/jobs", json=tiny)
    job = answer.json()
    assert answer.status_code == 202
    assert job.keys() == documented("Job")
    assert job["spec"].keys() == documented("Spec") - {"baseline", "baseline_allow"}
    assert re.fullmatch(r"job_[0-9A-HJKMNP-TV-Z]{26}", job["id"])
    assert answer.headers["location"] == job["urls"]["self"]
    assert answer.headers["etag"]
    assert answer.headers["retry-after"]
    assert api.finished(job)["status"] == "succeeded"


def test_the_spec_shown_is_the_one_that_runs(finished):
    spec = finished["spec"]
    given = {"n": 64, "m": None, "k": None, "sizes": None, "search_s": None}
    assert spec["params"] == given | {"repeats": None, "dtype": "float32", "mode": "chain"}
    assert spec["measure"]["processes"] == {"min": 1, "max": 1}
    assert spec["framework"] == "tensorflow"
    assert spec["labels"] == {"commit": "abc"}


def test_a_finished_job_has_its_worker_and_times(finished):
    assert (finished["status"], finished["done"], finished["attempt"]) == ("succeeded", True, 1)
    assert finished["failure"] is None
    assert finished["worker"].keys() == {"id", "device", "host"}
    times = [finished[name] for name in ("created_at", "queued_at", "started_at", "finished_at")]
    assert all(UTC.fullmatch(time) for time in times)
    moments = [datetime.fromisoformat(time) for time in times]
    assert moments == sorted(moments)


def test_the_result_has_every_field_of_the_contract(finished, result, documented):
    assert result.keys() == documented("Result")
    assert result["job"] == finished["id"]
    assert result["phases"].keys() == documented("Phases")
    assert all(metric.keys() == documented("Metric") for metric in result["metrics"])
    repeats = [metric["repeat"] for metric in result["metrics"] if metric["repeat"]]
    assert all(repeat.keys() == documented("Repeat") for repeat in repeats)
    assert result["device"]["id"] == finished["worker"]["device"].partition("@")[0]
    assert result["precision"]["requested"] == "float32"


def test_the_figures_agree_with_each_other(result):
    metrics = {metric["name"]: metric for metric in result["metrics"]}
    flop = 2 * 64**3 * 100
    throughput, time_s = metrics["throughput"]["value"], metrics["execution_time"]["value"]
    assert throughput * time_s == pytest.approx(flop, rel=1e-4)  # each has six digits
    (run,) = result["runs"]
    assert run["median"] == pytest.approx(time_s, rel=1e-4)
    assert run["samples"] == metrics["throughput"]["samples"] >= 3
    assert result["peak"]["value"] is None or 0 < result["peak"]["fraction"] < 1.2


def test_the_samples_are_those_of_the_result(api, finished, result):
    url = f"{finished['urls']['self']}/samples"
    (run,) = api.http.get(url).raise_for_status().json()["data"]
    assert (run["run"], run["case"]) == (0, None)
    assert len(run["samples"]) == len(run["sample_cpu_s"]) == result["runs"][0]["samples"]
    assert statistics.median(run["samples"]) == pytest.approx(result["runs"][0]["median"], rel=1e-4)
    answer = api.http.get(url, params={"format": "csv"})
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert [float(row["time_s"]) for row in rows if row["phase"] == "sample"] == run["samples"]
    assert [float(row["time_s"]) for row in rows if row["phase"] == "warmup"] == run["warmup"]


def test_samples_in_an_unknown_format_are_refused(api, finished):
    answer = api.http.get(f"{finished['urls']['self']}/samples", params={"format": "xml"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")


@pytest.mark.provokes("INSUFFICIENT_SAMPLES")
def test_so_few_samples_are_never_trusted(result):
    assert result["verdict"] in ("indicative", "untrusted")
    assert "INSUFFICIENT_SAMPLES" in {warning["code"] for warning in result["warnings"]}
    metric = result["metrics"][0]
    assert (metric["low"], metric["high"]) == (None, None)
    assert metric["reason"]


def test_a_long_poll_follows_a_job_version_by_version(api, tiny):
    answer = api.http.post("/v1/jobs", json=tiny)
    seen = [answer.json()]
    while not seen[-1]["done"]:
        known = {"If-None-Match": answer.headers["etag"]}
        answer = api.http.get(seen[0]["urls"]["self"], params={"wait": 30}, headers=known)
        assert answer.status_code == 200, "a tiny job has news within 30 s"
        seen.append(answer.json())
    versions = [job["version"] for job in seen]
    assert versions == sorted(set(versions))
    assert seen[-1]["status"] == "succeeded"
