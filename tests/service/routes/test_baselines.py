"""Routes of baselines: what a stored job or another version brings."""

import pytest

from dyno.models.job import BaselineOutcome
from dyno.models.result import Verdict
from dyno.store.named_documents import MOST_BASELINES
from dyno.store.redis import Keys
from tests.comparisons import times

SPEC = {"workload": "matmul", "params": {"n": 64}, "device": "cpu"}


def test_a_figure_is_copied_with_what_it_depends_on(http, finished):
    job = finished()
    figure = http.put("/v1/baselines/main", json={"job": job}).json()["figure"]
    assert figure["by_run"] == [100.0, 101.0, 99.0, 100.5, 99.5]
    assert figure["peer"]["hardware_id"] == "hw_1"
    assert figure["circumstances"]["/device/model"] == "Test CPU"
    assert figure["circumstances"]["/environment/packages/jax"] == "0.10.2"
    assert figure["series"]
    http.delete(f"/v1/jobs/{job}").raise_for_status()
    assert http.get("/v1/baselines/main").json()["figure"] == figure


def test_a_baseline_knows_since_which_job_its_level_is_another_one(http, finished):
    def since(job, name="levels"):
        figure = http.put(f"/v1/baselines/{name}", json={"job": job}).raise_for_status().json()["figure"]
        return figure["level_since"]

    before = finished()
    assert since(before) is None
    slower = BaselineOutcome(name="levels", outcome="fail", low=0.7, high=0.8, margin=0.05, job=before)
    accepted, later = finished(times(0.75), baseline=slower), finished(times(0.75))
    assert [since(job) for job in (accepted, later)] == [accepted, accepted]
    assert since(later, "another") is None
    assert since(before) is None, "the level before"


def test_an_untrusted_figure_is_refused(http, finished):
    answer = http.put("/v1/baselines/main", json={"job": finished(verdict=Verdict.UNTRUSTED)})
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["pointer"], error["code"]) == (422, "/job", "untrusted")


def test_a_name_is_short_and_plain(http):
    for name in ("-a", "a b", "ä", "x" * 65):
        answer = http.put(f"/v1/baselines/{name}", json={"metric": "throughput", "at_least": 1})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request"), name
    refused = http.post("/v1/jobs", json=SPEC | {"baseline": "a b"})
    assert [each["pointer"] for each in refused.json()["errors"]] == ["/baseline"]


def test_the_limit_on_baselines_is_told(http, client, settings):
    client.hset(Keys(settings.namespace).baselines(None), mapping={f"b{at}": "{}" for at in range(MOST_BASELINES)})
    answer = http.put("/v1/baselines/more", json={"metric": "throughput", "at_least": 1})
    assert (answer.status_code, answer.json()["code"]) == (429, "limit-reached")
    client.delete(Keys(settings.namespace).baselines(None))


def test_a_damaged_baseline_stops_no_other_request(http, client, settings, offered):
    client.hset(Keys(settings.namespace).baselines(None), "damaged", "{")
    http.put("/v1/baselines/whole", json={"metric": "throughput", "at_least": 1}).raise_for_status()
    assert [each["name"] for each in http.get("/v1/baselines").json()["data"]] == ["whole"]
    assert http.get("/v1/baselines/damaged").json()["code"] == "record-unreadable"
    assert http.post("/v1/jobs", json=SPEC | {"baseline": "damaged"}).json()["code"] == "record-unreadable"
    assert http.delete("/v1/baselines/damaged").status_code == 204


def test_a_job_whose_result_lacks_the_metric_is_refused(http, offered):
    http.put("/v1/baselines/of-epochs", json={"metric": "epoch_time", "at_most": 1}).raise_for_status()
    refused = http.post("/v1/jobs", json=SPEC | {"baseline": "of-epochs"})
    [error] = refused.json()["errors"]
    assert (refused.status_code, error["pointer"], error["code"]) == (422, "/baseline", "unknown-metric")
    assert "use one of throughput or execution_time" in error["detail"]


def test_a_rerun_is_held_against_the_baseline_of_today(http, finished, offered):
    http.put("/v1/baselines/main", json={"metric": "throughput", "at_least": 1}).raise_for_status()
    job = finished(spec={"baseline": "main"})
    again = http.post(f"/v1/jobs/{job}/rerun").json()
    assert again["spec"]["baseline"] == "main"
    http.post(f"/v1/jobs/{again['id']}/cancel").raise_for_status()
    http.delete("/v1/baselines/main").raise_for_status()
    refused = http.post(f"/v1/jobs/{job}/rerun")
    assert [each["code"] for each in refused.json()["errors"]] == ["unknown-baseline"]
    assert "`dyno baseline save " in refused.json()["errors"][0]["detail"]


def test_a_repeated_submit_is_answered_though_its_baseline_is_gone(http, offered):
    http.put("/v1/baselines/main", json={"metric": "throughput", "at_least": 1}).raise_for_status()
    key = {"Idempotency-Key": "with-a-baseline"}
    first = http.post("/v1/jobs", json=SPEC | {"baseline": "main"}, headers=key).json()
    http.delete("/v1/baselines/main").raise_for_status()
    again = http.post("/v1/jobs", json=SPEC | {"baseline": "main"}, headers=key)
    assert (again.status_code, again.json()["id"]) == (202, first["id"])
    http.post(f"/v1/jobs/{first['id']}/cancel").raise_for_status()


@pytest.mark.provokes("MARGIN_FINE")
@pytest.mark.silent("MARGIN_FINE")
def test_a_margin_that_no_gate_can_tell_is_named_at_the_submit(http, finished, offered):
    def told(margin):
        http.put("/v1/baselines/main", json={"job": finished(), "margin": margin}).raise_for_status()
        job = http.post("/v1/jobs", json=SPEC | {"baseline": "main"}).raise_for_status().json()
        http.post(f"/v1/jobs/{job['id']}/cancel").raise_for_status()
        return [warning for warning in job["warnings"] if warning["code"] == "MARGIN_FINE"]

    [warning] = told(0.001)
    able = warning["evidence"]["least_margin"]
    assert warning["message"].startswith("The margin of main is 0.1 %, but even after 15 runs")
    assert told(1.5 * able) == []
