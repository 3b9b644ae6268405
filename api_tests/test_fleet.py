from __future__ import annotations

from typing import Any

import httpx

from tests.waiting import eventually


def test_the_service_lives_and_is_ready(http: httpx.Client) -> None:
    assert http.get("/livez").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ok"}


def test_a_device_says_what_it_is_and_what_it_can_do(http: httpx.Client) -> None:
    device = http.get("/v1/devices").json()["data"][0]
    assert device["kind"] == "cpu"
    assert device["cores"]
    assert device["memory_bytes"] > 2**20
    assert "tensorflow" in device["frameworks"]
    assert device["started_with"] in ("fork", "spawn")
    assert device["state"] in ("idle", "busy", "draining")
    peak = device["peak"]["float32"]
    assert (peak["value"] is None) == (peak["reason"] is not None)


def test_a_worker_belongs_to_its_device(http: httpx.Client) -> None:
    device = http.get("/v1/devices").json()["data"][0]
    workers = {worker["id"]: worker for worker in http.get("/v1/workers").json()["data"]}
    assert workers[device["worker"]]["device"] == f"{device['id']}@{device['host']}"


def test_a_busy_worker_names_its_job(api: Any, long: dict[str, Any]) -> None:
    def seen() -> tuple[str, str | None]:
        workers = {worker["id"]: worker for worker in api.http.get("/v1/workers").json()["data"]}
        worker = workers[long["worker"]["id"]]
        return worker["state"], worker["job"]

    # A worker speaks for itself, a moment after its job's record does.
    eventually(lambda: seen() == ("busy", long["id"]), 10, "the worker says that it is busy")


def test_the_workloads_say_how_to_ask_for_them(http: httpx.Client) -> None:
    rows = http.get("/v1/workloads").json()["data"]
    assert {"matmul", "mnist_cnn"} <= {row["name"] for row in rows}
    for row in rows:
        told = {"name", "description", "frameworks", "params", "metrics", "references"}
        assert row.keys() == told | {"trains", "replicable", "datasets"}
        assert row["params"]["type"] == "object"
        assert row["metrics"]
        assert http.get(f"/v1/workloads/{row['name']}").json() == row


def test_openapi_describes_every_route_that_these_tests_use(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert document["paths"].keys() == {
        "/v1/jobs",
        "/v1/jobs/{job_id}",
        "/v1/jobs/{job_id}/cancel",
        "/v1/jobs/{job_id}/result",
        "/v1/jobs/{job_id}/samples",
        "/v1/jobs/{job_id}/artifacts",
        "/v1/jobs/{job_id}/artifacts/{name}",
        "/v1/comparisons",
        "/v1/comparisons/{comparison_id}",
        "/v1/comparisons/{comparison_id}/bars.svg",
        "/v1/workloads",
        "/v1/workloads/{name}",
        "/v1/devices",
        "/v1/workers",
        "/livez",
        "/readyz",
    }
