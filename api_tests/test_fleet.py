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
