"""The history of results: series, contexts, changes, and alarms to acknowledge."""

import random

import pytest

from dyno.models.result import BasedOn, Repeat, Verdict
from dyno.store import jobs as module
from dyno.store.redis import Keys
from tests.comparisons import a_metric


def history(http, test, **filters):
    found = http.get("/v1/history", params={"label": f"test={test}"} | filters).raise_for_status().json()
    return found


@pytest.fixture
def series(finished):
    """Succeeded jobs whose values lie around a level, with a coefficient of variation of 1 %."""

    def make(test, count, level, spec=None, **result):
        rng = random.Random(f"{test} {level}")
        made = [[level * rng.gauss(1, 0.01) * each for each in (0.999, 1.0, 1.001)] for _ in range(count)]
        asked = {"labels": {"test": test}} | (spec or {})
        return [finished(by_run, asked, **result) for by_run in made]

    return make


def test_a_series_has_its_points_oldest_first(http, series):
    jobs = series("points", 3, 100.0)
    other = series("points", 1, 100.0, {"params": {"n": 32}})
    found = history(http, "points")
    assert [[point["job"] for point in each["points"]] for each in found["series"]] == [other, jobs]
    assert found["series"][0]["spec_id"] != found["series"][1]["spec_id"]
    one = found["series"][1]
    assert (one["workload"], one["metric"], one["unit"], one["better"]) == ("matmul", "throughput", "FLOP/s", "higher")
    assert (one["hardware_id"], one["device"], one["params"]["n"]) == ("hw_1", "cpu:0-1@here", 64)
    job, point = http.get(f"/v1/jobs/{jobs[0]}").json(), one["points"][0]
    (metric,) = http.get(job["urls"]["result"]).json()["metrics"]
    assert [point[name] for name in ("value", "low", "high")] == [metric[name] for name in ("value", "low", "high")]
    assert (point["time"], point["verdict"], point["labels"]) == (job["finished_at"], "indicative", {"test": "points"})
    assert (found["alarms"], found["results_read"], found["next_cursor"]) == ([], 4, None)


def test_untrusted_and_emulated_results_are_shown_and_not_counted(http, series):
    series("counted", 8, 100.0)
    series("counted", 4, 50.0, verdict=Verdict.UNTRUSTED)
    emulated = {"kind": "cpu", "model": "Test CPU", "emulated": True}
    for level in (100.0, 50.0):
        series("counted", 4, level, hardware_id="hw_emulated", device=emulated)
    found = {each["hardware_id"]: each for each in history(http, "counted")["series"]}
    assert [point["counted"] for point in found["hw_1"]["points"]] == [True] * 8 + [False] * 4
    assert found["hw_emulated"]["emulated"]
    assert [each["changes"] for each in found.values()] == [[], []]


def test_a_step_is_a_change_and_an_alarm_that_can_be_acknowledged_once(http, series, client, settings):
    series("step", 8, 100.0)
    slow = series("step", 6, 80.0)
    found = history(http, "step")
    (change,), (alarm,) = found["series"][0]["changes"], found["alarms"]
    assert change["job"] == alarm["job"] == slow[0]
    assert change["low"] < 0.8 < change["high"]
    assert (alarm["outcome"], alarm["state"], alarm["acknowledged_at"]) == ("slower", "new", None)
    assert alarm["series_id"] == found["series"][0]["series_id"]
    answer = http.post(alarm["acknowledge_url"])
    assert answer.status_code == 200, answer.text
    assert history(http, "step")["alarms"] == [answer.json()]
    assert answer.json()["state"] == "acknowledged"
    assert http.post(alarm["acknowledge_url"]).json() == answer.json()
    assert 0 < client.ttl(Keys(settings.namespace).alarms(alarm["series_id"])) <= 366 * 24 * 3600


def test_a_time_that_rises_is_slower(http, finished):
    for value in (1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.25, 1.24, 1.26, 1.25, 1.24, 1.26):
        metric = a_metric("time", [value, value], better="lower")
        finished(spec={"labels": {"test": "time"}}, metrics=[metric])
    found = history(http, "time")
    (alarm,) = found["alarms"]
    assert (alarm["outcome"], found["series"][0]["metric"]) == ("slower", "time")
    assert alarm["low"] < 0.8 < alarm["high"]


def test_a_new_context_splits_a_series_and_says_what_differs(http, series):
    environment = {"python": "CPython 3.11", "packages": {"tensorflow": "2.20.0"}, "driver": {"version": "550.54"}}
    series("context", 8, 100.0, environment=environment)
    newer = environment | {"driver": {"version": "560.28"}}
    jobs = series("context", 8, 80.0, environment=newer, context_id="ctx_2")
    found = history(http, "context")
    (one,) = found["series"]
    first, second = one["contexts"]
    assert (first["context_id"], first["differences"], first["ratio"]) == ("ctx_1", [], None)
    assert (second["context_id"], second["job"], second["points"]) == ("ctx_2", jobs[0], 8)
    assert second["differences"] == [{"field": "/environment/driver/version", "values": ["550.54", "560.28"]}]
    assert second["low"] < 0.8 < second["high"]
    assert (one["changes"], found["alarms"]) == ([], [])


def at_clock(value, clock_hz):
    repeat = Repeat(low=value, high=value, based_on=BasedOn(runs=2), clock_hz=clock_hz, elasticity=1.0)
    return {"metrics": [a_metric(by_run=[value, value]).model_copy(update={"repeat": repeat})]}


def test_values_are_adjusted_to_one_clock(http, finished):
    for clock in (3.6, 3.7, 3.8, 3.9, 3.6, 3.7, 3.8):
        finished(spec={"labels": {"test": "clock"}}, **at_clock(25.0 * clock, clock * 1e9))
    (one,) = history(http, "clock")["series"]
    assert one["clock_hz"] == pytest.approx(3.7e9)
    assert [point["adjusted_value"] for point in one["points"]] == pytest.approx([92.5] * 7)
    assert [point["clock_hz"] for point in one["points"]][:2] == [3.6e9, 3.7e9]


def test_a_device_that_is_slow_because_its_clock_fell_is_slow(http, finished):
    for clock in [3.7, 3.75, 3.8, 3.7, 3.75, 3.8, *[3.0, 3.05, 2.95] * 2]:
        finished(spec={"labels": {"test": "throttled"}}, **at_clock(25.0 * clock, clock * 1e9))
    found = history(http, "throttled")
    (change,) = found["series"][0]["changes"]
    assert change["ratio"] == pytest.approx(0.8, abs=0.02)
    assert found["series"][0]["clock_hz"] == pytest.approx(3e9)
    assert len(found["alarms"]) == 1


def test_a_value_without_a_clock_stays_as_it_is(http, finished):
    finished(spec={"labels": {"test": "half"}}, **at_clock(90.0, 3.6e9))
    finished(spec={"labels": {"test": "half"}})
    (one,) = history(http, "half")["series"]
    assert one["clock_hz"] == 3.6e9
    assert [point["adjusted_value"] for point in one["points"]] == [90.0, None]


def test_pages_lead_to_older_results(http, series):
    jobs = series("pages", 5, 100.0)
    newest = http.get("/v1/history", params={"label": "test=pages", "limit": 2})
    assert (newest.json()["results_read"], newest.json()["has_more"]) == (2, True)
    assert [point["job"] for point in newest.json()["series"][0]["points"]] == jobs[3:]
    older = http.get(newest.links["next"]["url"]).json()
    assert [point["job"] for point in older["series"][0]["points"]] == jobs[1:3]
    assert history(http, "pages", limit=2, cursor=newest.json()["next_cursor"]) == older


def test_a_result_is_found_behind_pages_of_jobs_that_do_not_match(http, finished, monkeypatch):
    """The name of a label has no index, and neither has a device."""
    rare = finished(spec={"labels": {"rare": "yes"}})
    for _ in range(9):
        finished()
    monkeypatch.setattr(module, "_MOST_LOOKED_AT", 16)
    monkeypatch.setattr(module, "_MOST_STEPS", 2)
    (series,) = http.get("/v1/history", params={"label": "rare"}).json()["series"]
    assert [point["job"] for point in series["points"]] == [rare]


@pytest.mark.parametrize("wrong", [{"limit": 501}, {"limit": 0}, {"cursor": "x"}, {"from": "soon"}, {"spec": "s"}])
def test_wrong_parameters_are_refused(http, wrong):
    answer = http.get("/v1/history", params=wrong)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert [each["pointer"] for each in answer.json()["errors"]] == [f"/query/{next(iter(wrong))}"]
