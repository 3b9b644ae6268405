from urllib.parse import quote

from tests.waiting import eventually


def test_the_service_is_live_and_ready(http):
    assert http.get("/livez").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ok", "notes": []}


def test_a_device_is_described(http):
    device = http.get("/v1/devices").json()["data"][0]
    assert device["kind"] == "cpu"
    assert device["cores"]
    assert device["memory_bytes"] > 2**20
    assert "tensorflow" in device["frameworks"]
    assert device["started_with"] in ("fork", "spawn")
    assert device["state"] in ("idle", "busy", "draining")
    peak = device["peak"]["float32"]
    assert (peak["value"] is None) == (peak["reason"] is not None)


def test_a_worker_belongs_to_its_device(http):
    device = http.get("/v1/devices").json()["data"][0]
    workers = {worker["id"]: worker for worker in http.get("/v1/workers").json()["data"]}
    assert workers[device["worker"]]["device"] == f"{device['id']}@{device['host']}"


def test_a_busy_worker_names_its_job(api, long):
    def seen():
        workers = {worker["id"]: worker for worker in api.http.get("/v1/workers").json()["data"]}
        worker = workers[long["worker"]["id"]]
        return worker["state"], worker["job"]

    # A worker's own record follows its job's record a moment later.
    eventually(lambda: seen() == ("busy", long["id"]), 10, "the worker says that it is busy")


def test_a_cordoned_device_finishes_its_job_and_takes_none_until_uncordoned(api, long, tiny):
    name = long["worker"]["device"]
    url = f"/v1/devices/{quote(name, safe='')}"

    def device():
        rows = api.http.get("/v1/devices").json()["data"]
        return next(row for row in rows if f"{row['id']}@{row['host']}" == name)

    assert device()["cordoned"] is False
    try:
        answer = api.http.post(f"{url}/cordon")
        assert (answer.status_code, answer.json()) == (200, {"device": name, "cordoned": True})
        assert device()["cordoned"] is True
        assert api.http.post(f"{url}/cordon").status_code == 200
        refused = api.http.post("/v1/jobs", json=tiny | {"device": name})
        assert (refused.status_code, refused.json()["code"]) == (422, "no-device-fits")
        assert f"are cordoned: {name}" in refused.json()["detail"]
        waiting = api.submit(tiny | {"device": name, "queue_if_absent": True})
        assert "NO_DEVICE_YET" in [warning["code"] for warning in waiting["warnings"]]
        assert api.job(long)["status"] == "running"
        api.cancel(long)
        eventually(lambda: device()["state"] == "idle", 60, "the device rests")
        assert api.job(waiting)["status"] == "queued"
    finally:
        answer = api.http.post(f"{url}/uncordon")
    assert (answer.status_code, answer.json()) == (200, {"device": name, "cordoned": False})
    assert device()["cordoned"] is False
    assert api.finished(waiting)["status"] == "succeeded"


def test_a_device_is_cordoned_by_its_short_name_and_an_unknown_one_is_not_found(http):
    known = http.get("/v1/devices").json()["data"][0]
    for word, cordoned in (("cordon", True), ("uncordon", False)):
        answer = http.post(f"/v1/devices/{known['id']}/{word}").json()
        assert answer == {"device": f"{known['id']}@{known['host']}", "cordoned": cordoned}
        problem = http.post(f"/v1/devices/tpu:7@nowhere/{word}")
        assert (problem.status_code, problem.json()["code"]) == (404, "device-not-found")
        assert known["id"] in problem.json()["detail"]


def test_workloads_have_schemas_of_their_params(http):
    rows = http.get("/v1/workloads").json()["data"]
    assert {"matmul", "mnist_cnn"} <= {row["name"] for row in rows}
    for row in rows:
        told = {"name", "description", "frameworks", "params", "metrics", "references"}
        assert row.keys() == told | {"trains", "replicable", "datasets"}
        assert row["params"]["type"] == "object"
        assert row["metrics"]
        assert http.get(f"/v1/workloads/{row['name']}").json() == row


def test_openapi_describes_every_route_that_these_tests_use(http):
    document = http.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert document["paths"].keys() == {
        "/v1/jobs",
        "/v1/jobs/{job_id}",
        "/v1/jobs/{job_id}/rerun",
        "/v1/jobs/{job_id}/cancel",
        "/v1/jobs/{job_id}/result",
        "/v1/jobs/{job_id}/logs",
        "/v1/jobs/{job_id}/samples",
        "/v1/jobs/{job_id}/events",
        "/v1/jobs/{job_id}/artifacts",
        "/v1/jobs/{job_id}/artifacts/{name}",
        "/v1/results",
        "/v1/results/import",
        "/v1/advice",
        "/v1/schedules",
        "/v1/schedules/{name}",
        "/v1/comparisons",
        "/v1/comparisons/{comparison_id}",
        "/v1/comparisons/{comparison_id}/bars.svg",
        "/v1/baselines",
        "/v1/baselines/{name}",
        "/v1/sweeps",
        "/v1/sweeps/{sweep_id}",
        "/v1/sweeps/{sweep_id}/cancel",
        "/v1/sweeps/{sweep_id}/plot",
        "/v1/sweeps/{sweep_id}/table",
        "/v1/history",
        "/v1/history/alarms/{alarm_id}/acknowledge",
        "/v1/events",
        "/v1/webhook-deliveries",
        "/v1/webhook-deliveries/{delivery_id}/redeliver",
        "/v1/webhook-secret",
        "/v1/workloads",
        "/v1/workloads/{name}",
        "/v1/devices",
        "/v1/devices/{device_id}/cordon",
        "/v1/devices/{device_id}/uncordon",
        "/v1/workers",
        "/v1/me",
        "/v1/keys",
        "/v1/keys/{key_id}",
        "/livez",
        "/readyz",
        "/metrics",
    }
