"""Sweeps as clients see them: submit, follow, tables, plots, cancel, and what a death of the API leaves."""

import contextlib
import csv
import io
import threading

import httpx
import pytest

from api_tests.conftest import DONE_WITHIN_S, LONG, TINY
from tests.waiting import eventually

TWO_RUNS = TINY | {"measure": {"processes": 2, "min_samples": 3, "min_s": 0}}


def finished(api, sweep):
    def done():
        now = api.http.get(sweep["urls"]["self"]).json()
        return now["status"] != "running" and now

    return eventually(done, DONE_WITHIN_S, "a done sweep")


@pytest.fixture(scope="module")
def sweep(api, documented):
    body = {"spec": TWO_RUNS, "grid": {"params.repeats": [10, 20, 40]}, "base": {"params.repeats": 10}}
    answer = api.http.post("/v1/sweeps", json=body)
    begun = answer.json()
    assert (answer.status_code, begun["status"]) == (202, "running"), answer.text
    assert answer.headers["location"] == begun["urls"]["self"]
    assert begun.keys() == documented("Sweep")
    assert all(point["metrics"] is None for point in begun["points"])
    return finished(api, begun)


def test_a_sweep_has_every_field_of_the_contract(api, sweep, documented):
    assert sweep.keys() == documented("Sweep")
    assert (sweep["status"], sweep["metric"], sweep["eta_s"]) == ("succeeded", "throughput", 0)
    assert [point["values"] for point in sweep["points"]] == [{"params.repeats": n} for n in (10, 20, 40)]
    for point in sweep["points"]:
        assert point.keys() == documented("SweepPoint")
        result = api.http.get(f"/v1/jobs/{point['job']}/result").json()
        assert point["verdict"] == result["verdict"]
        figures = {metric["name"]: metric["value"] for metric in result["metrics"]}
        assert {metric["name"]: metric["value"] for metric in point["metrics"]} == figures


def test_ratios_are_of_the_results_in_the_right_direction(api, sweep):
    jobs = [point["job"] for point in sweep["points"]]
    values = [point["metrics"][0]["value"] for point in sweep["points"]]
    assert sweep["points"][0]["ratio"] is None
    for place in (1, 2):
        ratio = sweep["points"][place]["ratio"]
        assert (
            ratio["value"] == ratio["as_measured"] == pytest.approx(values[place] / values[0], rel=1e-4)
        )  # stored figures are rounded
        # Two runs of a busy machine may scatter so much that there is no interval.
        assert ratio["reason"] or ratio["low"] < ratio["value"] < ratio["high"]
    assert {row["job"] for row in api.http.get("/v1/results", params={"label": f"sweep={sweep['id']}"}).json()} == {
        *jobs
    }


@pytest.mark.verify
def test_rounds_give_an_interval_over_jobs(api):
    body = {"spec": TINY, "grid": {"params.repeats": [10, 40]}, "base": {"params.repeats": 10}, "rounds": 2}
    found = finished(api, api.http.post("/v1/sweeps", json=body).json())
    assert (found["status"], found["counts"]) == ("succeeded", {"total": 4, "succeeded": 4})
    started = sorted(_jobs(api, found), key=lambda job: str(job["started_at"]))
    assert [{job["spec"]["params"]["repeats"] for job in started[at : at + 2]} for at in (0, 2)] == [{10, 40}] * 2
    ratio = found["points"][1]["ratio"]
    assert (ratio["degrees_of_freedom"], ratio["low"] < ratio["value"] < ratio["high"]) == (1, True)


@pytest.mark.verify
def test_auto_finds_the_largest_batch_and_the_fastest(api):
    params = {"epochs": 1, "train_samples": 80, "test_samples": 32, "data": "sample", "jit_compile": False}
    spec = {"workload": "mnist_cnn", "device": "cpu", "params": params, "measure": TINY["measure"]}
    begun = api.http.post("/v1/sweeps", json={"spec": spec, "grid": {"params.batch_size": ["auto"]}}).json()
    found = finished(api, begun)
    assert (found["status"], [point["values"]["params.batch_size"] for point in found["points"]]) == (
        "succeeded",
        [32, 64],
    )
    times = {point["values"]["params.batch_size"]: point["metrics"][0]["value"] for point in found["points"]}
    [answer] = found["batch_sizes"]
    assert (answer["largest_that_fits"], answer["fastest"]) == (64, min(times, key=lambda size: times[size]))
    assert answer["limit"] == "a batch of 128 is larger than the training set; at most 80"
    started = {job["spec"]["params"]["batch_size"]: job["started_at"] for job in _jobs(api, found)}
    assert started[32] < started[64]


def _jobs(api, found):
    return [api.http.get(f"/v1/jobs/{job}").json() for point in found["points"] for job in point["jobs"]]


def test_the_table_and_the_plot_show_the_results(api, sweep):
    table = api.http.get(sweep["urls"]["table"], params={"format": "csv"})
    lines = list(csv.DictReader(io.StringIO(table.text)))
    assert [float(line["value"]) for line in lines] == [point["metrics"][0]["value"] for point in sweep["points"]]
    markdown = api.http.get(sweep["urls"]["table"], params={"format": "md", "metric": "execution_time"}).text
    assert markdown.startswith("| repeats | execution_time |")
    assert [line.split(" | ")[0] for line in markdown.splitlines()[2:]] == ["| 10", "| 20", "| 40"]
    plot = api.http.get(sweep["urls"]["plot"])
    assert (plot.status_code, plot.headers["content-type"]) == (200, "image/svg+xml")
    assert ">repeats<" in plot.text


def test_a_sweep_is_canceled_as_a_whole(api):
    begun = api.http.post("/v1/sweeps", json={"spec": LONG, "grid": {"params.n": [256, 257, 258]}}).json()
    eventually(lambda: api.http.get(begun["urls"]["self"]).json()["counts"].get("running"), 60, "a running job")
    assert api.http.post(begun["urls"]["cancel"]).status_code == 202
    now = finished(api, begun)
    assert (now["status"], now["counts"]) == ("canceled", {"total": 3, "canceled": 3})


def test_after_a_death_of_the_api_a_retry_finds_all_jobs_or_queues_them(api, house):
    """The API is killed while it submits; whenever that is, there is one sweep with all of its jobs afterwards."""
    body = {"spec": TINY, "grid": {"params.n": list(range(64, 124))}}
    key = {"Idempotency-Key": "killed while it submits"}
    with house.another_api() as (process, other):
        threaded = _in_thread(lambda: other.http.post("/v1/sweeps", json=body, headers=key))
        eventually(lambda: _has_sweep(api) or not threaded.is_alive(), 30, "a sweep")
        process.kill()
        threaded.join()
    begun = api.http.post("/v1/sweeps", json=body, headers=key)
    assert begun.status_code == 202, begun.text
    sweeps = [each for each in api.http.get("/v1/sweeps").json()["data"] if each["counts"]["total"] == 60]
    assert [each["id"] for each in sweeps] == [begun.json()["id"]]
    jobs = api.http.get(f"{begun.json()['urls']['jobs']}&limit=100").json()["data"]
    assert {job["id"] for job in jobs} == {point["job"] for point in begun.json()["points"]}
    assert len(jobs) == 60
    api.http.post(begun.json()["urls"]["cancel"])
    finished(api, begun.json())


def _has_sweep(api):
    return any(each["counts"]["total"] == 60 for each in api.http.get("/v1/sweeps").json()["data"])


def _in_thread(ask):
    def asked():
        with contextlib.suppress(httpx.HTTPError):
            ask()

    thread = threading.Thread(target=asked)
    thread.start()
    return thread
