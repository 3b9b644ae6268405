"""What the dashboard's forms send, also when it is odd: a page with what is wrong, and nothing done."""

from __future__ import annotations

import httpx
import pytest


def test_no_page_creates_the_first_key(http: httpx.Client) -> None:
    for answer in (http.post("/keys", data={"name": "first", "scope": "admin"}), http.get("/keys")):
        assert (answer.status_code, answer.headers["location"][:12]) == (303, "/login?next=")
    assert http.get("/v1/jobs").status_code == 200, "still no key is needed"


def test_the_filters_of_jobs_may_be_empty(http: httpx.Client) -> None:
    assert http.get("/jobs?workload=&status=&device=&label=").status_code == 200
    assert http.get("/history?workload=&device=&label=&metric=").status_code == 200


@pytest.mark.parametrize("query", [f"device={'x' * 300}", f"label={'x' * 300}", "cursor=odd", "status=odd"])
def test_a_filter_that_no_job_can_have_is_refused(http: httpx.Client, query: str) -> None:
    assert http.get(f"/jobs?{query}").status_code == 422


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/sweeps", {"workload": "matmul", "axis1": "n", "values1": "64", "rounds": "²"}),
        ("/sweeps", {"workload": "matmul", "axis1": "n", "values1": "64", "rounds": "01"}),
        ("/sweeps", {"workload": "matmul", "axis1": "n", "values1": "64", "rounds": "two"}),
        ("/workloads/matmul", {"params": "1", "params.n": "2"}),
        ("/workloads/matmul/estimate", {"params": "1", "params.n": "2"}),
        ("/workloads/matmul", {"params.n": "[" * 15_000}),
    ],
)
def test_an_odd_form_is_refused(http: httpx.Client, path: str, fields: dict[str, str]) -> None:
    answer = http.post(path, data=fields)
    assert answer.status_code == 422, answer.text
    assert http.get("/v1/jobs").json()["data"] == []


def test_an_unknown_alarm_is_a_page(http: httpx.Client) -> None:
    answer = http.post("/history/alarms/alm_0_0/acknowledge?foo=1")
    assert (answer.status_code, "No such alarm" in answer.text) == (404, True)


def test_pages_are_not_stored_by_browsers(http: httpx.Client) -> None:
    assert http.get("/jobs").headers["cache-control"] == "no-store"
