"""Comparisons of results over HTTP and by the command; a worker without a device has ended their jobs."""

import json

import pytest

from dyno.client import Client
from dyno.models.comparison import Comparative
from dyno.models.result import DataOrigin, Epoch, Training, Trial, Verdict
from dyno.store.redis import Keys
from service.problems import MEDIA_TYPE
from tests.comparisons import RATES, a_metric, times


def refused(http, body):
    answer = http.post("/v1/comparisons", json=body)
    assert answer.headers["content-type"] == MEDIA_TYPE
    return answer.status_code, answer.json()


def test_a_comparison_is_made_kept_and_drawn(http, finished):
    first, other = finished(), finished(times(2))
    answer = http.post("/v1/comparisons", json={"jobs": [first, other]})
    made = answer.json()
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == made["urls"]["self"] == f"/v1/comparisons/{made['id']}"
    assert [each["job"] for each in made["results"]] == [first, other]
    assert made["results"][1]["ratio"]["verdict"] == "FASTER"
    assert http.get(answer.headers["location"]).json() == made
    bars = http.get(made["urls"]["bars"])
    assert bars.headers["content-type"].startswith("image/svg+xml")
    assert (bars.headers["cache-control"], bars.headers["vary"]) == ("private, max-age=3600", "Authorization")
    assert bars.headers["x-content-type-options"] == "nosniff"
    assert bars.text.startswith("<svg")


def test_a_comparison_is_deleted_with_its_job(http, finished):
    jobs = [finished(), finished()]
    made = http.post("/v1/comparisons", json={"jobs": jobs}).json()
    assert http.delete(f"/v1/jobs/{jobs[1]}").status_code == 204
    answer = http.get(made["urls"]["self"])
    assert (answer.status_code, answer.json()["code"]) == (404, "comparison-not-found")


def test_a_record_of_another_version_is_reported_as_unreadable(http, finished, client, settings):
    first, other = finished(), finished()
    made = http.post("/v1/comparisons", json={"jobs": [first, other]}).json()
    keys = Keys(settings.namespace)
    for key in (keys.result(first), keys.samples(first), keys.comparison(made["id"])):
        client.set(key, '{"schema": 2}')
    root = f"/v1/jobs/{first}"
    paths = f"{root}/result", f"{root}/samples", f"{root}/artifacts", made["urls"]["self"], made["urls"]["bars"]
    for path in paths:
        answer = http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (500, "record-unreadable"), path
        assert "another version" in answer.json()["detail"]
    assert http.post("/v1/comparisons", json={"jobs": [other, finished()]}).status_code == 201


def test_results_of_different_work_are_compared_and_the_fields_named(http, finished):
    jobs = [finished(), finished(times(2), spec={"params": {"n": 65, "mode": "dispatch"}})]
    made = http.post("/v1/comparisons", json={"jobs": jobs, "base": jobs[1]}).json()
    assert (made["same_work"], made["base"], made["results"][0]["ratio"]["verdict"]) == (False, 1, "SLOWER")
    assert made["differences"] == [
        {"field": "/params/n", "values": [64, 65]},
        {"field": "/params/mode", "values": ["chain", "dispatch"]},
    ]


def test_a_job_without_a_result_and_an_unknown_one_are_told_apart(http, finished, submitted):
    done, queued, unknown = finished(), submitted(), f"job_{'0' * 26}"
    status, problem = refused(http, {"jobs": [done, queued]})
    assert (status, problem["code"], problem["job_status"]) == (409, "result-not-ready", "queued")
    assert queued in problem["detail"]
    status, problem = refused(http, {"jobs": [unknown, done]})
    assert (status, problem["code"]) == (404, "job-not-found")


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/jobs"]),
        ({"jobs": []}, ["/jobs"]),
        ({"jobs": ["job_1", "x/../y"]}, ["/jobs/0", "/jobs/1"]),
        ({"jobs": [f"job_{'0' * 26}"] * 2}, ["/jobs"]),
        ({"jobs": [f"job_{'0' * 25}{n}" for n in range(10)] * 3}, ["/jobs"]),
        ({"jobs": "all", "metric": "", "margin": 0, "confidence": 1}, ["/jobs", "/metric", "/margin", "/confidence"]),
        ({"jobs": [f"job_{'0' * 25}{n}" for n in range(2)], "margin": "2 %", "x": 1}, ["/margin", "/x"]),
        ({"jobs": [f"job_{'0' * 25}{n}" for n in range(2)], "base": 2}, ["/base"]),
        ({"jobs": [f"job_{'0' * 25}{n}" for n in range(2)], "base": f"job_{'0' * 25}2"}, ["/base"]),
        ({"jobs": [f"job_{'0' * 25}{n}" for n in range(2)], "base": True}, ["/base"]),
        ({"jobs": ["job_1", "x"], "base": -1}, ["/base", "/jobs/0", "/jobs/1"]),
    ],
)
def test_every_wrong_field_of_a_request_is_named(http, body, pointers):
    status, problem = refused(http, body)
    assert (status, problem["code"]) == (422, "invalid-comparison")
    assert sorted(error["pointer"] for error in problem["errors"]) == sorted(pointers)


def test_an_unknown_metric_is_refused_with_the_known_ones(http, finished):
    status, problem = refused(http, {"jobs": [finished(), finished()], "metric": "beauty"})
    assert status == 422
    assert [(error["pointer"], error["code"]) for error in problem["errors"]] == [("/metric", "unknown-metric")]
    assert "throughput" in problem["errors"][0]["detail"]


def test_the_client_reads_its_comparison(http, finished):
    with Client(str(http.base_url)) as client:
        made = client.compare([finished(), finished(times(0.5))], margin=0.1)
        assert client.comparison(made.id) == made
        assert client.bars(made.id).startswith("<svg")
    ratio = made.results[1].ratio
    assert ratio.verdict is Comparative.SLOWER
    assert made.margin == 0.1


def test_the_command_prints_the_ratio_and_ends_with_5_where_one_is_slower(dyno, finished, tmp_path):
    first, slower, faster = finished(), finished(times(0.5)), finished(times(2))
    told = dyno("compare", first, slower)
    assert told.exit_code == 5
    for words in ("SLOWER", "0.5", "smallest effect", "not side by side"):
        assert words in told.output
    bars = tmp_path / "bars.svg"
    asked = dyno("compare", first, faster, "--json", "--bars", str(bars))
    assert asked.exit_code == 0
    assert json.loads(asked.stdout)["results"][1]["ratio"]["verdict"] == "FASTER"
    assert bars.read_text().startswith("<svg")
    assert asked.stderr.rstrip().endswith(f"saved {bars}")


WIDE = [80.0, 120.0, 95.0, 105.0, 100.0]


@pytest.mark.parametrize(
    ("by_run", "options", "code"),
    [
        (times(0.5), [], 5),
        (times(0.5), ["--fail-on", "slower"], 5),
        (times(0.5), ["--fail-on", "inconclusive"], 5),
        (times(1.05, WIDE), [], 0),
        (times(1.05, WIDE), ["--fail-on", "slower"], 0),
        (times(1.05, WIDE), ["--fail-on", "inconclusive"], 5),
        (times(1.05, WIDE), ["--fail-on", "slower", "--fail-on", "inconclusive"], 5),
        (times(2), ["--fail-on", "slower", "--fail-on", "inconclusive"], 0),
        (times(2), ["--base", "1"], 5),
        (times(2), ["--base", "2"], 2),
        (times(2), ["--fail-on", "faster"], 2),
    ],
)
def test_the_command_fails_on_the_verdicts_that_it_is_told_to(dyno, finished, by_run, options, code):
    jobs = [finished(WIDE if options != ["--base", "1"] else RATES), finished(by_run)]
    done = dyno("compare", *jobs, *options)
    assert done.exit_code == code, done.output


@pytest.mark.parametrize(
    ("factors", "options", "code"),
    [((2,), [], 6), ((2,), ["--fail-on", "inconclusive"], 6), ((0.5,), [], 6), ((2, 0.5), [], 5)],
)
def test_an_untrusted_result_tells_nothing_and_has_an_exit_code(dyno, finished, factors, options, code):
    """With a third, trusted result that is proven slower, the code is that of a slower one."""
    wrong, *others = factors
    jobs = [finished(), finished(times(wrong), verdict=Verdict.UNTRUSTED), *(finished(times(each)) for each in others)]
    done = dyno("compare", *jobs, *options)
    assert (done.exit_code, "untrusted" in done.output) == (code, True), done.output


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--pairs", "4"], "--pairs: for specs alone"),
        (["--no-control"], "--control: for specs alone"),
        (["--margin", "nan"], "nan isn't a finite number"),
        (["--confidence", "inf"], "inf isn't a finite number"),
        (["--bars", "/no/such/folder/bars.svg"], "there is no folder /no/such/folder"),
    ],
)
def test_wrong_options_are_refused(dyno, finished, options, text):
    told = dyno("compare", finished(), finished(), *options)
    assert (told.exit_code, text in " ".join(told.output.replace("│", " ").split())) == (2, True), told.output


def test_a_spec_with_nan_is_refused(dyno, tmp_path):
    spec = tmp_path / "spec.json"
    spec.write_text('{"workload": "matmul", "measure": {"max_s": NaN}}')
    told = dyno("compare", str(spec), str(spec))
    assert (told.exit_code, "has NaN or infinity" in told.output) == (2, True), told.output


def test_the_command_prints_speed_ups_over_the_base_and_what_would_decide(dyno, finished):
    def on(model):
        return {"device": {"id": model, "host": "here", "model": model, "kind": "cpu"}}

    jobs = [finished(times(29), **on("GPU")), finished(**on("CPU")), finished(WIDE, **on("TPU"))]
    told = dyno("compare", *jobs, "--base", jobs[1])
    assert told.exit_code == 0
    assert "GPU: 29 times as fast as CPU (28." in told.output
    assert "same work: yes" in told.output
    [undecided] = [line for line in told.output.splitlines() if line.startswith("TPU: 1 times as fast as CPU")]
    assert "INCONCLUSIVE; about" in undecided
    assert "more runs of each would decide" in undecided


def test_the_command_names_results_by_the_params_that_differ(dyno, finished):
    jobs = [finished(), finished(times(2), spec={"params": {"n": 65}})]
    told = dyno("compare", *jobs)
    assert told.exit_code == 0
    assert "n 65: 2 times as fast as n 64 (" in told.output
    assert "same work: no" in told.output


def test_a_job_is_not_compared_with_a_file(dyno, tmp_path):
    spec = tmp_path / "spec.json"
    spec.write_text('{"workload": "matmul"}')
    told = dyno("compare", f"job_{'0' * 26}", str(spec))
    assert told.exit_code == 2
    assert "isn't a job id: name jobs alone, or two files with specs" in " ".join(told.output.replace("│", " ").split())


def test_two_specs_on_two_devices_are_sent_to_sweeps(http):
    specs = [{"workload": "matmul", "device": device} for device in ("cpu:0-0", "cpu:1-1")]
    status, problem = refused(http, {"specs": specs})
    [error] = problem["errors"]
    assert (status, error["pointer"], error["code"]) == (422, "/specs/1/device", "not-the-same")
    assert "sweep over them" in error["detail"]


def test_the_command_says_why_results_are_not_comparable(dyno, finished):
    jobs = [finished(), finished(metrics=[a_metric("latency", better="lower")])]
    told = dyno("compare", *jobs)
    assert told.exit_code == 3
    assert "no metric to compare" in told.output


def test_trainings_are_compared_by_their_accuracy_over_seeds(http, finished):
    def trained(accuracies):
        trials = [
            Trial(seed=seed, epochs=1, loss=0.1, highest_loss=0.1, accuracy=each)
            for seed, each in enumerate(accuracies)
        ]
        data = DataOrigin(name="mnist", kind="real", train_samples=60000, test_samples=10000)
        epochs = [Epoch(index=0, time_s=1.0, loss=0.1)]
        return finished(training=Training(epochs=epochs, seed=0, data=data, accuracy=accuracies[0], trials=trials))

    jobs = [trained([0.830, 0.831, 0.829]), trained([0.845, 0.846, 0.844])]
    body = {"jobs": jobs, "metric": "test_accuracy", "margin": 0.001}
    found = http.post("/v1/comparisons", json=body).raise_for_status().json()
    assert (found["metric"], found["unit"]) == ("test_accuracy", "1")
    assert found["results"][1]["ratio"]["verdict"] == "FASTER"
    assert found["results"][1]["ratio"]["low"] > 1.01
    assert http.post("/v1/comparisons", json={"jobs": jobs}).json()["metric"] == "throughput"
