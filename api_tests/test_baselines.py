"""Baselines as clients see them."""

import random

import pytest

from api_tests.conftest import errors
from dyno.models.job import new_ulid

QUICK = {"workload": "matmul", "params": {"n": 64}, "measure": {"processes": 2, "min_samples": 3, "min_s": 0}}


def put(api, name, **body):
    answer = api.http.put(f"/v1/baselines/{name}", json=body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


@pytest.fixture
def name(api):
    """A name that no other test uses."""
    name = f"test-{new_ulid()}"
    yield name
    api.http.delete(f"/v1/baselines/{name}")


@pytest.fixture(scope="module")
def done(api):
    return api.finished(api.submit(QUICK))


def value_of(api, job, metric="throughput"):
    metrics = api.http.get(job["urls"]["result"]).json()["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == metric))


def test_a_baseline_is_saved_replaced_listed_and_deleted(api, done, name):
    made = api.http.put(f"/v1/baselines/{name}", json={"job": done["id"]})
    assert (made.status_code, made.headers["location"]) == (201, f"/v1/baselines/{name}")
    saved = made.json()
    assert (saved["name"], saved["job"], saved["metric"], saved["unit"]) == (name, done["id"], "throughput", "FLOP/s")
    assert (saved["margin"], saved["at_least"], saved["at_most"]) == (0.05, None, None)
    figure = saved["figure"]
    assert figure["value"] == value_of(api, done)
    assert figure["low"] < figure["value"] < figure["high"]
    assert (figure["params"]["n"], len(figure["by_run"])) == (64, 2)
    assert api.http.get(f"/v1/baselines/{name}").json() == saved
    again = api.http.put(f"/v1/baselines/{name}", json={"job": done["id"], "metric": "execution_time", "margin": 0.1})
    assert (again.status_code, again.json()["metric"], again.json()["margin"]) == (200, "execution_time", 0.1)
    assert [each for each in api.http.get("/v1/baselines").json()["data"] if each["name"] == name] == [again.json()]
    assert api.http.delete(f"/v1/baselines/{name}").status_code == 204
    gone = api.http.get(f"/v1/baselines/{name}")
    assert (gone.status_code, gone.json()["code"]) == (404, "baseline-not-found")
    assert api.http.delete(f"/v1/baselines/{name}").status_code == 404


def test_a_job_is_judged_against_its_baseline_even_after_that_is_gone(api, done, name, documented):
    saved = put(api, name, job=done["id"], margin=0.5)
    queued = api.submit(QUICK, baseline=name)
    assert (queued["spec"]["baseline"], queued["baseline"]) == (name, None)
    assert api.http.delete(f"/v1/baselines/{name}").status_code == 204  # the job keeps its copy
    job = api.finished(queued)
    found = job["baseline"]
    assert found.keys() == documented("BaselineOutcome")
    assert (found["name"], found["job"], found["metric"], found["margin"]) == (name, done["id"], "throughput", 0.5)
    assert found == api.http.get(job["urls"]["result"]).json()["baseline"]
    if found["low"] is not None:  # a result that other work on this machine spoiled may have no interval
        assert 0 < found["low"] < found["ratio"] < found["high"]
        assert found["ratio"] == pytest.approx(value_of(api, job) / saved["figure"]["value"], rel=0.5)
        expected = "pass" if found["low"] >= 1 / 1.5 else "fail" if found["high"] < 1 / 1.5 else "inconclusive"
        assert found["outcome"] == expected
    else:
        assert (found["outcome"], found["reason"] is not None) == ("inconclusive", True)


@pytest.mark.parametrize(("limit", "outcome"), [("at_least", "fail"), ("at_most", "pass")])
def test_a_limit_needs_no_job(api, name, limit, outcome):
    saved = put(api, name, metric="throughput", **{limit: 1e18})
    assert (saved["job"], saved["figure"], saved["margin"], saved[limit]) == (None, None, 0, 1e18)
    job = api.finished(api.submit(QUICK, baseline=name))
    assert job["baseline"]["outcome"] == outcome, job["baseline"]
    assert (job["baseline"]["ratio"] < 1) == (outcome == "fail")


def test_other_params_are_named(api, done, name):
    put(api, name, job=done["id"])
    other = api.finished(api.submit(QUICK, params={"n": 96}, baseline=name))["baseline"]
    assert {"field": "/params/n", "baseline": 64, "job": 96} in other["differences"]


def test_an_inconclusive_job_makes_more_runs_than_it_asked_for(api, name):
    """One run of work without a history shows no scatter, so it takes three times the number."""
    put(api, name, metric="throughput", at_least=1)
    measure = {"processes": 1, "min_samples": 3, "min_s": 0}
    params = {"n": 64, "repeats": random.randint(1000, 2000)}
    job = api.finished(api.submit(QUICK, baseline=name, params=params, measure=measure))
    assert len(api.http.get(job["urls"]["result"]).json()["runs"]) == 3
    assert job["baseline"]["low"] < job["baseline"]["ratio"] < job["baseline"]["high"]


@pytest.mark.parametrize(
    ("body", "pointer", "code"),
    [
        ({}, "/metric", "missing"),
        ({"job": "job_x"}, "/job", "string-pattern-mismatch"),
        ({"job": f"job_{0:026}"}, "/job", "unknown-job"),
        ({"metric": "throughput"}, "", "value-error"),
        ({"metric": "throughput", "at_least": 1, "at_most": 2}, "", "value-error"),
        ({"metric": "throughput", "at_least": 0}, "/at_least", "greater-than"),
        ({"metric": "throughput", "at_least": 1, "margin": 0.1}, "/margin", "extra-forbidden"),
        ({"job": f"job_{0:026}", "margin": 2}, "/margin", "less-than-equal"),
        ({"job": f"job_{0:026}", "at_least": 2}, "/at_least", "extra-forbidden"),
    ],
)
def test_a_wrong_baseline_is_refused(api, name, body, pointer, code):
    answer = api.http.put(f"/v1/baselines/{name}", json=body)
    assert errors(answer, "invalid-baseline") == [(pointer, code)]
    assert api.http.get(f"/v1/baselines/{name}").status_code == 404


def test_a_metric_that_the_job_lacks_or_takes_once_is_refused(api, done, name):
    answer = api.http.put(f"/v1/baselines/{name}", json={"job": done["id"], "metric": "accuracy"})
    assert errors(answer, "invalid-baseline") == [("/metric", "unknown-metric")]
    assert "throughput" in answer.text


def test_a_job_without_a_result_is_no_baseline(api, name, long):
    answer = api.http.put(f"/v1/baselines/{name}", json={"job": long["id"]})
    assert errors(answer, "invalid-baseline") == [("/job", "not-succeeded")]


def test_a_spec_with_an_unknown_baseline_is_refused_and_queues_nothing(api):
    for options in ({}, {"validate_only": "true"}):
        answer = api.http.post("/v1/jobs", json=QUICK | {"baseline": "nobody-saved-this"}, params=options)
        assert errors(answer, "invalid-spec") == [("/baseline", "unknown-baseline")]


def test_a_spec_of_a_comparison_names_no_baseline(api, done, name):
    put(api, name, job=done["id"])
    spec = {"workload": "matmul", "params": {"n": 64}}
    answer = api.http.post("/v1/comparisons", json={"specs": [spec | {"baseline": name}, spec]})
    assert errors(answer, "invalid-comparison") == [("/specs/0/baseline", "comparison-judges")]
