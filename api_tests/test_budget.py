"""A job measures within a budget of time, and its result says how the budget was spent."""

import pytest

from api_tests.conftest import TINY


def test_a_job_makes_five_runs_at_least_and_says_how_it_spent_its_budget(api):
    job = api.finished(api.submit(TINY | {"measure": {"budget_s": 1}}))
    assert job["spec"]["measure"] == {"budget_s": 1.0, "cold_start": False}
    result = api.http.get(job["urls"]["result"]).json()
    budget = result["measurement"]["budget"]
    assert (budget["budget_s"], budget["runs"]) == (1.0, len(result["runs"]))
    assert budget["runs"] >= 5
    assert budget["samples"] == sum(run["samples"] for run in result["runs"]) >= 25
    took_s = [sum(seconds for seconds in run["phases"].values() if seconds) for run in result["runs"]]
    assert budget["spent_s"] == pytest.approx(len(took_s) * sum(took_s[1:]) / len(took_s[1:]), rel=1e-3)
    assert budget["once_s"] == pytest.approx(max(0.0, sum(took_s) - budget["spent_s"]), abs=0.01)
    assert all(0 < outlook["rel_half_width"] < 1 for outlook in budget["larger"])


def test_settings_of_the_samples_rule_over_the_budget(api):
    job = api.finished(api.submit())
    assert api.http.get(job["urls"]["result"]).json()["measurement"] == {"budget": None}


@pytest.mark.parametrize("budget_s", [0, -1, "15", 86401])
def test_an_impossible_budget_is_named(api, budget_s):
    answer = api.http.post("/v1/jobs", json=TINY | {"measure": {"budget_s": budget_s}})
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/measure/budget_s"]
