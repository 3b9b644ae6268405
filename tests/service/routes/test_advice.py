"""Advice about the devices that are up, by the results that there are."""

import json

import pytest

from dyno.bench.devices.environment import hardware_id
from dyno.models.result import Energy, Verdict
from dyno.settings import Settings
from dyno.store.leases import Leases
from dyno.store.redis import sync_client
from service.app import create_app
from tests.comparisons import a_metric
from tests.service.workers import claim_of, publish, succeed

RATES = [1e9, 1.01e9, 0.99e9, 1.005e9, 0.995e9]


@pytest.fixture(scope="module")
def settings(redis_url, namespace):
    prices = '{"cpu:0-1@here": 0.1, "Fast CPU": 4}'
    return Settings.model_validate(
        {"redis_url": redis_url, "namespace": namespace, "device_ttl_s": 600, "prices": prices}
    )


@pytest.fixture(scope="module")
def http(settings, serve):
    with serve(create_app(settings)) as http:
        yield http


@pytest.fixture
def devices(client, settings, device):
    """Three devices that are up."""
    found = [
        device(),
        device(id="cpu:2-3", model="Fast CPU", cores=[2, 3]),
        device(id="cpu:4-5", cores=[4, 5], frameworks={"jax": "0.10"}),
    ]
    for each in found:
        publish(client, settings, each)
    return found


@pytest.fixture
def measured(http, settings, devices):
    """Make a result of a device."""
    with sync_client(settings) as client:
        leases = Leases(client, settings)

        def one(device, by_run, n, **result):
            body = {"workload": "matmul", "params": {"n": n}, "device": device.full_id, "expires_in_s": 3600}
            job = http.post("/v1/jobs", json=body).raise_for_status().json()
            claim = claim_of(leases, device)
            assert claim.job_id == job["id"]
            known = {"hardware_id": hardware_id(device), "device": device.model_dump(mode="json")}
            succeed(leases, claim, [a_metric(by_run=by_run)], **known | result)
            return claim.job_id

        yield one


def advice(http, **query):
    return http.get("/v1/advice", params=query).raise_for_status().json()


def test_it_ranks_the_newest_result_of_each_device(http, measured, devices):
    measured(devices[0], [9e9] * 3, n=100)  # an older one
    slow = measured(devices[0], RATES, n=100)
    fast = measured(devices[1], [3 * rate for rate in RATES], n=100)
    measured(devices[0], [9e9] * 3, n=101)  # another spec
    found = advice(http, workload="matmul", params='{"n": 100}')
    assert [(row["device"], row["job"]) for row in found["rows"]] == [("cpu:2-3@here", fast), ("cpu:0-1@here", slow)]
    assert (found["metric"], found["params"]["n"], found["has_more"]) == ("throughput", 100, False)
    by = {ranking["by"]: ranking for ranking in found["rankings"]}
    assert by["per_s"]["best"] == ["cpu:2-3@here"]
    assert by["per_s"]["devices"][1]["ratio"]["verdict"] == "SLOWER"
    assert by["per_currency"]["best"] == ["cpu:0-1@here"]
    assert found["rows"][1]["per_currency"]["value"] == pytest.approx(1e9 * 3600 / 0.1)
    assert [(each["device"], each["reason"]) for each in found["not_ranked"]] == [
        ("cpu:4-5@here", "tensorflow isn't installed there")
    ]


def test_it_says_where_a_result_is_missing_and_how_to_get_it(http, devices):
    found = advice(http, workload="matmul", params='{"n": 7, "dtype": "float32"}')
    assert (found["rows"], found["rankings"]) == ([], [])
    missing = {each["device"]: each for each in found["not_ranked"]}
    assert missing["cpu:0-1@here"]["reason"] == "no result of this spec"
    run = "dyno run matmul --device cpu:0-1@here --param n=7 --param 'dtype=\"float32\"'"
    assert missing["cpu:0-1@here"]["run"] == run
    assert missing["cpu:4-5@here"]["run"] is None


def test_results_that_say_nothing_of_the_device_are_not_ranked(http, measured, devices):
    good = measured(devices[0], RATES, n=200)
    measured(devices[0], [1e12] * 3, n=200, verdict=Verdict.UNTRUSTED)
    wrong = measured(devices[1], [1e12] * 3, n=200, verdict=Verdict.UNTRUSTED)
    found = advice(http, workload="matmul", params='{"n": 200}')
    assert [row["job"] for row in found["rows"]] == [good]
    assert f"{wrong} is untrusted" in found["not_ranked"][0]["reason"]
    assert found["not_ranked"][0]["run"]
    other = measured(devices[1], RATES, n=201, hardware_id="hw_before")
    reasons = [each["reason"] for each in advice(http, workload="matmul", params='{"n": 201}')["not_ranked"]]
    assert f"{other} is from before the device's hardware changed" in reasons


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"workload": "matmul", "params": "{"}, "/query/params"),
        ({"workload": "matmul", "params": "[1]"}, "/query/params"),
        ({"workload": "matmul", "params": '{"n": 0}'}, "/query/params/n"),
        ({"workload": "nothing"}, "/query/workload"),
        ({"workload": "matmul", "metric": "execution_time"}, "/query/metric"),
        ({"workload": "device_info"}, "/query/metric"),
        ({}, "/query/workload"),
    ],
)
def test_a_wrong_question_is_refused(http, query, pointer):
    answer = http.get("/v1/advice", params=query)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_the_command_says_which_device_to_choose(dyno, measured, devices):
    measured(devices[0], RATES, n=300)
    measured(devices[1], [3 * rate for rate in RATES], n=300)
    told = dyno("advise", "matmul", "--n", "300")
    assert told.exit_code == 0, told.output
    assert "Most per second: cpu:2-3@here; cpu:0-1@here does 0.333 (0.33" in told.stdout
    assert "Most per unit of currency: cpu:0-1@here; cpu:2-3@here does 0.075" in told.stdout
    assert "From which amount on cpu:2-3@here is done before cpu:0-1@here isn't known: " in told.stdout
    assert "cpu:4-5@here: tensorflow isn't installed there" in told.stdout
    found = json.loads(dyno("advise", "matmul", "--param", "n=300", "--json").stdout)
    assert len(found["rows"]) == 2
    missing = dyno("advise", "matmul", "--n", "301").stdout
    assert "no result of this spec; run: dyno run matmul --device cpu:0-1@here --param n=301" in missing
    alike = measured(devices[1], RATES, n=300)
    assert alike in dyno("advise", "matmul", "--n", "300").stdout
    assert ", which can't be told apart from " in dyno("advise", "matmul", "--n", "300").stdout


@pytest.mark.parametrize(
    ("by_run", "of_energy", "criterion"),
    [([1e9], None, "per second"), (RATES, "flop_per_joule", "per joule")],
    ids=["single-runs", "energy-of-the-whole-job"],
)
def test_without_an_interval_the_value_alone_ranks(http, dyno, measured, devices, by_run, of_energy, criterion):
    n = 400 + len(by_run)
    for device, factor in ((devices[0], 1.0), (devices[1], 0.001)):
        energy = {"energy": Energy(joules=1.0, flop_per_joule=1e9 * factor)} if of_energy else {}
        measured(device, [factor * rate for rate in by_run], n=n, **energy)
    told = dyno("advise", "matmul", "--n", str(n)).stdout
    unknown = "cpu:2-3@here does 0.001 times as much; by its value alone, with no interval: cpu:2-3@here"
    assert f"Most {criterion}: cpu:0-1@here; {unknown}" in told
    page = http.get("/advice", params={"workload": "matmul", "params.n": str(n)}).raise_for_status()
    section = next(each for each in page.text.split("<section>") if each.startswith(f"<h2>Most {criterion}"))
    assert section.count('class="word">best') == 1
    assert "tell these devices apart" not in section
    assert "No interval, so ranked by the value alone: cpu:2-3@here." in section
    assert "0.001 times as much, no interval" in section
