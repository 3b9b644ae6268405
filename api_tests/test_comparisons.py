"""Comparisons as clients see them."""

from xml.etree import ElementTree

import pytest

from api_tests.conftest import TINY, errors

TWO_RUNS = TINY | {"measure": {"processes": 2, "min_samples": 3, "min_s": 0}}
ROUNDED = 1e-4  # results are stored with rounded figures


@pytest.fixture(scope="module")
def alike(api):
    """Two succeeded jobs of the same work."""
    jobs = [api.submit(TWO_RUNS) for _ in range(2)]
    return [str(api.finished(job)["id"]) for job in jobs]


@pytest.fixture(scope="module")
def comparison(api, alike):
    answer = api.http.post("/v1/comparisons", json={"jobs": alike, "metric": "execution_time"})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == answer.json()["urls"]["self"]
    return answer.json()


def test_a_comparison_has_every_field_of_the_contract(comparison, alike, documented):
    assert comparison.keys() == documented("Comparison")
    assert [each["job"] for each in comparison["results"]] == alike
    assert comparison["results"][0]["ratio"] is None
    assert comparison["results"][1]["ratio"].keys() == documented("Ratio")
    assert (comparison["metric"], comparison["better"], comparison["unit"]) == ("execution_time", "lower", "s")
    assert (comparison["same_work"], comparison["not_compared"], comparison["base"]) == (True, [], 0)


def test_the_ratio_is_that_of_the_results_in_the_right_direction(api, comparison):
    first, other = (
        next(m["value"] for m in api.http.get(f"/v1/jobs/{each['job']}/result").json()["metrics"] if m["unit"] == "s")
        for each in comparison["results"]
    )
    second = comparison["results"][1]
    assert second["value"] == other
    ratio = second["ratio"]
    assert ratio["value"] == pytest.approx(
        first / (second["adjusted_value"] or other), rel=ROUNDED
    )  # at the clock of the first
    assert ratio["verdict"] in ("FASTER", "SLOWER", "SAME", "INCONCLUSIVE")
    assert (ratio["low"] is None) == (ratio["reason"] is not None)
    assert comparison["verdict"] in ("indicative", "untrusted")


def test_a_comparison_is_kept_and_drawn(api, comparison, alike):
    assert api.http.get(comparison["urls"]["self"]).json() == comparison
    bars = api.http.get(comparison["urls"]["bars"])
    assert bars.headers["content-type"].startswith("image/svg+xml")
    words = "".join(ElementTree.fromstring(bars.text).itertext())
    assert all(job[-8:] in words for job in alike)


@pytest.fixture(scope="module")
def in_bfloat16(api):
    """A succeeded job of as many products of another size, in another precision."""
    return str(api.finished(api.submit(TWO_RUNS | {"params": {"n": 96, "dtype": "bfloat16"}}))["id"])


def values(comparison, field):
    [found] = [each["values"] for each in comparison["differences"] if each["field"] == field]
    return list(found)


def test_different_work_is_compared_per_unit_of_work_and_named(api, alike, in_bfloat16):
    answer = api.http.post("/v1/comparisons", json={"jobs": [alike[0], in_bfloat16]})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["same_work"], made["metric"], made["unit"]) == (False, "throughput", "FLOP/s")
    assert made["not_compared"] == ["execution_time"]
    assert values(made, "/params/n") == [64, 96]
    assert values(made, "/params/dtype") == values(made, "/precision/requested") == ["float32", "bfloat16"]
    first, other = (each["value"] for each in made["results"])
    assert made["results"][1]["ratio"]["value"] == pytest.approx(
        (made["results"][1]["adjusted_value"] or other) / first, rel=ROUNDED
    )
    assert any("execution_time" in note for note in made["notes"])


def test_a_metric_that_depends_on_the_amount_of_work_is_refused_for_different_amounts(api, alike, in_bfloat16):
    answer = api.http.post("/v1/comparisons", json={"jobs": [alike[0], in_bfloat16], "metric": "execution_time"})
    assert errors(answer, "invalid-comparison") == [("/metric", "other-work")]
    assert "throughput" in answer.text


@pytest.mark.parametrize("by", ["id", "index"])
def test_every_ratio_is_to_the_named_base(api, alike, in_bfloat16, by):
    body = {"jobs": [*alike, in_bfloat16], "base": in_bfloat16 if by == "id" else 2}
    made = api.http.post("/v1/comparisons", json=body).json()
    assert [each["job"] for each in made["results"]] == [*alike, in_bfloat16]
    assert made["base"] == 2
    assert [each["ratio"] is None for each in made["results"]] == [False, False, True]


@pytest.mark.parametrize("base", [2, -1, "job_00000000000000000000000000", "first", True])
def test_a_base_that_is_not_compared_is_refused(api, alike, base):
    answer = api.http.post("/v1/comparisons", json={"jobs": alike, "base": base})
    assert [pointer for pointer, _ in errors(answer, "invalid-comparison")] == ["/base"]


@pytest.fixture(scope="module")
def in_turns(api):
    """The done comparison of two specs of different work, run in turns."""
    brief = {"workload": "matmul", "measure": {"min_samples": 3, "min_s": 0}}
    specs = [brief | {"params": {"n": 64, "repeats": repeats}} for repeats in (10, 20)]
    answer = api.http.post("/v1/comparisons", json={"specs": specs, "pairs": 4, "control": False})
    begun = answer.json()
    assert (answer.status_code, begun["status"]) == (202, "running"), answer.text
    assert answer.headers["location"] == begun["urls"]["self"]
    job = api.finished(api.http.get(f"/v1/jobs/{begun['job']}").json())
    assert job["status"] == "succeeded", job["failure"]
    return api.http.get(begun["urls"]["self"]).json()


def test_two_specs_run_in_turns_on_one_device(api, in_turns, documented):
    assert in_turns.keys() == documented("Comparison")
    assert (in_turns["kind"], in_turns["status"]) == ("interleaved", "done")
    assert in_turns["control"] is None
    first, second = in_turns["results"]
    assert (first["runs"], second["runs"], second["device"]) == (4, 4, first["device"])
    assert second["ratio"].keys() == documented("Ratio")
    assert second["ratio"]["degrees_of_freedom"] == 2
    assert in_turns["differences"][0] == {"field": "/params/repeats", "values": [10, 20]}
    assert (in_turns["same_work"], in_turns["not_compared"]) == (False, ["execution_time"])
    result = api.http.get(f"/v1/jobs/{in_turns['job']}/result").json()
    begun_s = sorted(
        (run["started_at_s"], arm) for arm, each in enumerate((result, *result["arms"])) for run in each["runs"]
    )
    assert [arm for _, arm in begun_s] == [0, 1, 1, 0, 0, 1, 1, 0]
